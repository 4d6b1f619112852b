"""The survey of releases, and the distinct faults behind findings."""
