"""What a lookup can ask, which hits it may serve, and what a missing block of a hit means."""

from hitproof.conformance.exploration.symbolic import Candidate, Question, Space
from hitproof.conformance.scope.configurations import Configuration
from hitproof.conformance.scope.layouts import Layout
from hitproof.conformance.subject.lookups import Lookup
from hitproof.spec.attention import attends
from hitproof.spec.claims import Divergence
from hitproof.spec.groups import GroupKind
from hitproof.spec.hits import required_run, within_reach
from hitproof.spec.releases.horizons import LookaheadHorizon
from hitproof.spec.terms import ceil_div


def space_of(
    judged: Configuration | Layout, lookup: Lookup, max_length: int, policy: LookaheadHorizon
) -> Space:
    """What a lookup of at most ``max_length`` tokens can ask, and what it may serve."""
    cap, horizon = judged.reach(max_length, policy)
    keys = {
        (group_id, key): (number, block)
        for number, (looked_up, keys) in enumerate(zip(judged.looked_up, lookup.keys, strict=True))
        for group_id in looked_up.group_ids
        for block, key in enumerate(keys)
    }
    hits = [
        candidate(judged, length)
        for length in range(judged.alignment, cap + 1, judged.alignment)
        if all(
            within_reach(looked_up.shape, length // size, cap // size, horizon // size)
            for looked_up in judged.looked_up
            for size in (looked_up.group.block_size,)
        )
    ]
    several = len(judged.looked_up) > 1
    return Space(keys, judged.hash_block_size, (Candidate(0, frozenset()), *hits), several)


def candidate(judged: Configuration | Layout, length: int) -> Candidate:
    """A hit of ``length`` tokens, with what it requires."""
    return Candidate(
        length,
        frozenset(
            (number, block)
            for number, looked_up in enumerate(judged.looked_up)
            for block in required_run(looked_up.shape, length // looked_up.group.block_size)
        ),
    )


def out_of_reach(
    judged: Configuration | Layout, length: int | None, cap: int, horizon: int
) -> frozenset[Question]:
    """The lookahead blocks of a hit within the cap that end past the horizon (all in tokens).

    To serve such a hit is wrong whatever is cached: nothing shows for which tokens the last entries
    of the draft layers were computed. Where the rest is cached, nothing else is wrong.
    """
    if not isinstance(length, int) or not 0 < length <= cap or length % judged.alignment:
        return frozenset()
    hit = candidate(judged, length)
    sizes = [looked_up.group.block_size for looked_up in judged.looked_up]
    return frozenset(
        (number, block)
        for number, block in hit.required - read_by(judged, hit)
        if (block + 1) * sizes[number] > horizon
    )


def read_by(judged: Configuration | Layout, hit: Candidate) -> frozenset[Question]:
    """The required blocks of a hit that attention reads: not the lookahead blocks."""
    sizes = [looked_up.group.block_size for looked_up in judged.looked_up]
    return frozenset(
        (n, block) for n, block in hit.required if block < ceil_div(hit.length, sizes[n])
    )


def can_resume(judged: Configuration | Layout, length: object, cached: frozenset[Question]) -> bool:
    """Whether everything that attention reads of a hit of that length is cached, wherever it ends.

    By tokens, from the clauses of `spec.attention`.
    """
    if not isinstance(length, int) or length < 0:
        return False
    return resumed_at(judged, length) <= cached


def resumed_at(
    judged: Configuration | Layout, length: int, drafting: bool = False
) -> frozenset[Question]:
    """The blocks that attention reads of a hit of that length, wherever it ends, by tokens.

    A state that no block has is in block -1. With ``drafting``, the blocks are included that hold
    tokens on which entries of draft layers before the end depend.
    """
    read: set[Question] = set()
    for number, looked_up in enumerate(judged.looked_up):
        group, size = looked_up.group, looked_up.group.block_size
        if group.kind is GroupKind.MAMBA:
            blocks = {end // size - 1 if end % size == 0 else -1 for end in (length,) if end}
        else:
            first = length - group.window + 1 if group.window is not None else 0
            tokens = range(max(first, 0), length)
            blocks = {t // size for t in tokens if attends(length, t, group.window, group.chunk)}
        if drafting and group.eagle and length:
            blocks |= {token // size for token in range(length, length + group.prefill_lookahead)}
        read |= {(number, block) for block in blocks}
    return frozenset(read)


def worst_missing(
    judged: Configuration | Layout, missing: frozenset[Question], served: int
) -> tuple[Question, str]:
    """The missing block of a served hit, in tokens, that matters most, and what it is to the hit.

    That is "required", or "lookahead" where nothing else is missing.
    """
    sizes = [looked_up.group.block_size for looked_up in judged.looked_up]
    read = {(n, block) for n, block in missing if block < ceil_div(served, sizes[n])}
    return min(read or missing), "required" if read else "lookahead"


def of_missing(block: str | None) -> Divergence:
    """What a hit without a block is: attention does not read the lookahead block.

    It only shows that the entries of draft layers were computed for the same next token.
    """
    return Divergence.WRONG_DRAFTS if block == "lookahead" else Divergence.UNSOUND
