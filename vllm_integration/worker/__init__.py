"""What runs in the target's process."""
