"""The worker: the code that runs in the target's process."""
