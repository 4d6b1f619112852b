"""Histories: a scheduler's requests to a manager over time, their format and their sources."""
