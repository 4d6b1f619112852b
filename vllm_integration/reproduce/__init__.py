"""Findings as pytest cases of the target's own API."""
