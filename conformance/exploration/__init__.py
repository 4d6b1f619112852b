"""One lookup, unmodified, on every cache state."""
