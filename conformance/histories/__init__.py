"""Histories: what a scheduler asks of a manager over time, and where they come from."""
