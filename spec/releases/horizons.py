"""Lookahead horizons: how far past a hit a lookup may peek for the lookahead block."""

from enum import StrEnum

from hitproof.spec.terms import Tokens, tested


class LookaheadHorizon(StrEnum):
    """How far past the hit a lookup may peek for the lookahead block: a policy of the release.

    A coordinator of a single group is always ``CAPPED``. `spec.releases.policies` says which
    release has which.
    """

    CANDIDATE = "candidate"
    """No further than the candidate, which other groups may have shortened: there is no margin.
    Each group drops its lookahead block on its own, so a hit has no single horizon; see
    `spec.releases.sequential`."""
    CAPPED = "capped"
    """No further than ``num_tokens - 1``."""
    HASHED = "hashed"
    """Up to ``num_tokens``, as far as tokens are hashed."""


@tested
def horizon(
    policy: LookaheadHorizon, num_tokens: Tokens, candidate: Tokens | None = None
) -> Tokens:
    """The lookahead horizon, in tokens, of a request of ``num_tokens`` tokens.

    ``candidate`` is the maximum length passed to a group's lookup; None for the first group,
    whose candidate is the cap, ``num_tokens - 1``. Only ``CANDIDATE`` depends on it.
    """
    if policy is LookaheadHorizon.HASHED:
        return num_tokens
    if policy is LookaheadHorizon.CAPPED or candidate is None:
        return num_tokens - 1
    return candidate
