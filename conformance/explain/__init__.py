"""Explanations of hits and masks, and findings step by step."""
