"""Structured faults of Python functions: what single-point mutants cannot express."""
