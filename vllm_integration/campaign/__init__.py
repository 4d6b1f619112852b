"""Campaigns: many small jobs on local processes or on a Ray cluster, kept so that they resume."""
