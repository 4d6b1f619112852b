"""Reads what a wicked lookup stores, in another module."""

from typing import Any


def is_many(lookup: Any) -> bool:
    return bool(lookup.missing == 9)
