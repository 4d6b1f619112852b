"""Findings: what diverged, with its evidence and its pictures."""
