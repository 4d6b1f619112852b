"""Two managers play one history, and all that can be seen of them is compared."""
