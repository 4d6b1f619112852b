"""Subjects: what can be judged, as protocols."""
