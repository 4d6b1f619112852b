"""The commands of ``hitproof``, one a module; what they share is in `options` and `running`."""
