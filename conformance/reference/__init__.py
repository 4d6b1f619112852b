"""The reference's parts as subjects."""
