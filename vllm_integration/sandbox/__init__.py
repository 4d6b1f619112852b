"""Sandbox: the process that a target runs in, from start to end."""
