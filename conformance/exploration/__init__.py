"""Exhaustive exploration: one unmodified lookup on every cache state."""
