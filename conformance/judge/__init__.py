"""Whole managers, judged by the spec at every step of a history."""
