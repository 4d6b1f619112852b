"""Targets: releases, checkouts and commits, and how they get into the cache."""
