"""Evidence of a finding, shown on a whole manager."""
