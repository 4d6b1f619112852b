"""Two subjects side by side: what changes for users."""
