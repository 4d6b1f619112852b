"""Findings as pytest cases that use the target's own API."""
