"""Lockstep: two managers play one history, and everything observable is compared."""
