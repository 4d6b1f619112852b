"""Whole schedulers, judged by what a model runner does with their steps, and by what users get."""
