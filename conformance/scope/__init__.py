"""Scope of the checks: configurations of one group, layouts of several, and their coverage."""
