"""The families of mutants that the self-test makes."""

from enum import StrEnum


class Family(StrEnum):
    """A family of mutants."""

    SINGLE_POINT = "single-point"
    """One operator, operand, constant, condition or jump is changed."""
    STRUCTURED = "structured"
    """Statements are replaced; see `conformance.structured`."""
    SCHEDULER = "scheduler"
    """One point is changed in the scheduler's code that decides chunks, or where groups, block
    sizes and the pool are derived."""
    LIFECYCLE = "lifecycle"
    """One point is changed in what a scheduler does with requests before and after a step: how they
    come, end, fail, are preempted and go on, and with their blocks and loads then."""
    TIERS = "tiers"
    """One point is changed in what tiers behind KV connectors look up, store and load."""
