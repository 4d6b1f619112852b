"""The lookahead horizon: how far past a hit a lookup may peek for the lookahead block."""

from enum import StrEnum


class LookaheadHorizon(StrEnum):
    """How far past the hit a lookup may peek for the lookahead block: a policy of the release.

    The coordinator of one group is always ``CAPPED``. Which release has which stands in
    `spec.releases.policies`.
    """

    CANDIDATE = "candidate"
    """No further than the candidate, which other groups may have shortened: no margin. Each group
    drops its lookahead block on its own, so there is no one horizon of a hit; see
    `spec.releases.sequential`."""
    CAPPED = "capped"
    """No further than ``num_tokens - 1``."""
    HASHED = "hashed"
    """As far as tokens are hashed."""


def horizon(policy: LookaheadHorizon, num_tokens: int, candidate: int | None = None) -> int:
    """The lookahead horizon, in tokens, of a request of ``num_tokens`` tokens.

    ``candidate`` is the length that a group's lookup is asked for; None for the first group,
    whose candidate is the cap, ``num_tokens - 1``. Only ``CANDIDATE`` depends on it.
    """
    if policy is LookaheadHorizon.HASHED:
        return num_tokens
    if policy is LookaheadHorizon.CAPPED or candidate is None:
        return num_tokens - 1
    return candidate
