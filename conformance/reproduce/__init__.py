"""Reproduction: the evidence of a finding, shown on a whole manager."""
