"""The gate: what is asked of a target, and the verdict on the answers."""
