"""The theorems on policies that releases differ in: horizons, no margin, junctions.

``boundary``, ``candidate`` and ``block`` are in blocks of the group, ``num_tokens`` and
``block_size`` in tokens; the rest as in `proofs.retention`.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

from hitproof.proofs.cases import CASES, FULL, any_group, case_name, lookaheads, obligation
from hitproof.proofs.interpretation import Interpretation, Opaque
from hitproof.proofs.obligation import Hypotheses, Mutant, Obligation, Statement
from hitproof.proofs.several import alike, any_valid, on_edges, some_group, taking_part
from hitproof.spec import hits, retention
from hitproof.spec.groups import Group, GroupKind
from hitproof.spec.releases import sequential
from hitproof.spec.releases.horizons import LookaheadHorizon, horizon
from hitproof.spec.terms import Formula, Term, changed, for_each, implies, is_multiple, not_

_LOOKING_AHEAD = tuple((kind, n) for kind, n in CASES if n)
_SPARSE = tuple((kind, n) for kind, n in CASES if kind in retention.SPARSE_KINDS)

# --- how far lookups peek ------------------------------------------------------------------


def _longer_horizon_keeps_hits(
    at: Interpretation,
    kind: GroupKind,
    lookahead: int,
    policies: tuple[LookaheadHorizon, LookaheadHorizon],
) -> Statement:
    group, sizes = any_group(at, kind, lookahead)
    boundary, candidate = at.integer("boundary"), at.integer("candidate")
    num_tokens, block_size = at.integer("num_tokens"), at.integer("block_size")
    cached = at.block_set("cached")
    shorter, longer = (
        hits.valid_boundary(
            group,
            boundary,
            (num_tokens - 1) // block_size,
            horizon(policy, num_tokens, candidate) // block_size,
            cached,
        )
        for policy in policies
    )
    return Statement(
        (
            *sizes,
            ("a block holds at least one token", 1 <= block_size),
            ("the hit is not empty", 1 <= boundary),
            ("the candidate is within the cap", candidate <= num_tokens - 1),
            ("the hit may be served", shorter),
        ),
        longer,
    )


def _horizons() -> Iterable[Obligation]:
    for shorter, longer in pairwise(LookaheadHorizon):
        for kind, lookahead in _LOOKING_AHEAD:
            yield Obligation(
                f"hit_stays_valid_with_a_longer_horizon[{kind}, {shorter} to {longer}]",
                f"A hit that a group may serve with the lookahead horizon {shorter} it may serve "
                f"with {longer}, too.",
                partial(
                    _longer_horizon_keeps_hits,
                    kind=kind,
                    lookahead=lookahead,
                    policies=(shorter, longer),
                ),
            )


# --- lookup_returns_longest_valid_hit, without a margin ------------------------------------


def _no_full_candidate(at: Interpretation, kind: GroupKind, lookahead: int) -> Statement:
    group, sizes = any_group(at, kind, lookahead)
    candidate = at.integer("candidate")
    served = sequential.valid_without_margin(group, candidate, candidate, at.block_set("cached"))
    return Statement((*sizes, ("the candidate is not empty", 1 <= candidate)), not_(served))


def _only_loses(at: Interpretation, kind: GroupKind, lookahead: int) -> Statement:
    group, sizes = any_group(at, kind, lookahead)
    boundary, candidate = at.integer("boundary"), at.integer("candidate")
    cap = at.integer("cap")
    cached = at.block_set("cached")
    in_sequence = sequential.valid_without_margin(group, boundary, candidate, cached)
    return Statement(
        (
            *sizes,
            ("the hit is not empty", 1 <= boundary),
            ("and no longer than the candidate", boundary <= candidate),
            ("the candidate is within the cap", candidate <= cap),
            ("the hit may be served", in_sequence),
        ),
        hits.valid_boundary(group, boundary, cap, cap, cached),
    )


def _stays_valid(at: Interpretation, lookahead: int) -> Statement:
    group, sizes = any_group(at, FULL, lookahead)
    boundary, shorter, candidate = (at.integer(n) for n in ("boundary", "shorter", "candidate"))
    valid = partial(
        sequential.valid_without_margin, group, candidate=candidate, cached=at.block_set("cached")
    )
    return Statement(
        (
            *sizes,
            ("a later group's hit is not empty", 1 <= shorter),
            ("and no longer than this group's", shorter <= boundary),
            ("this group may serve its hit", valid(boundary)),
        ),
        valid(shorter),
    )


@obligation(
    "a_turn_costs_one_alignment",
    "When everything is cached, a turn of a group that looks ahead makes a candidate that is a "
    "boundary shorter by one alignment, no more and no less.",
)
def _turn_costs(at: Interpretation) -> Statement:
    lookahead, alignment = at.integer("lookahead_tokens"), at.integer("alignment")
    count = at.integer("count")
    left = (count * alignment - lookahead) // alignment * alignment
    return Statement(
        (
            ("the alignment is at least one token", 1 <= alignment),
            ("the group looks ahead", 1 <= lookahead),
            ("by one of its blocks, which is no longer than the alignment", lookahead <= alignment),
        ),
        left == (count - 1) * alignment,
    )


def _is_full(group: Group) -> Formula:
    return group.kind == FULL


def _two_taking_part(at: Interpretation) -> tuple[Any, Group, Group, Hypotheses]:
    """All groups, and any two of them that take part in prefix caching."""
    groups, _, group, exists = taking_part(at)
    another, other_exists = some_group(at, "other")
    other = groups[another]
    takes_part = ("so does the other one", other.prefix_cacheable)
    return groups, group, other, (*exists, *other_exists, takes_part)


def _same(group: Group, other: Group) -> Formula:
    """Whether two groups do not differ, not even in the flag."""
    return alike(group, other) & (group.eagle == other.eagle)


@obligation(
    "one_pass_suffices_with_full_attention_and_one_other_set",
    "One pass suffices if, of any number of groups, each that takes part is the same as one of "
    "full attention or as one of another kind.",
    without_full_attention=("So it does of any two kinds.", {"any_kinds": True}),
)
def _suffices(at: Interpretation, any_kinds: bool = False) -> Statement:
    groups, full, other, exists = _two_taking_part(at)

    def is_one_of_them(_: Term, each: Group) -> Formula:
        return implies(each.prefix_cacheable, _same(each, full) | _same(each, other))

    return Statement(
        (
            *exists,
            ("the other is of another kind", not_(_is_full(other))),
            *(() if any_kinds else (("the one is of full attention", _is_full(full)),)),
            ("each is the same as one of them", for_each(groups, is_one_of_them)),
        ),
        sequential.one_pass_suffices(groups),
    )


@obligation(
    "one_pass_suffices_with_nothing_else",
    "If it suffices, some group that takes part is of full attention, some is not, and any two "
    "that take part are the same if both are, or neither is.",
    whatever_their_kind=("Any two are the same.", {"whatever": True}),
)
def _suffices_only(at: Interpretation, whatever: bool = False) -> Statement:
    groups, group, other, exists = _two_taking_part(at)

    def is_absent(full: bool) -> Formula:
        return for_each(
            groups, lambda _, each: not_(each.prefix_cacheable & (_is_full(each) == full))
        )

    same_turn = True if whatever else _is_full(group) == _is_full(other)
    return Statement(
        (
            *exists,
            ("one pass suffices", sequential.one_pass_suffices(groups)),
        ),
        implies(same_turn, _same(group, other)) & not_(is_absent(True)) & not_(is_absent(False)),
    )


def _joint(at: Interpretation, policy: LookaheadHorizon, further: int = 0) -> Statement:
    """What a release's lookup returns, of any number of groups, whatever decides on a hit.

    ``further``: how many tokens further than it should it may peek.
    """
    groups, cached = at.groups(), at.block_sets("cached")
    alignment, num_tokens = at.integer("alignment"), at.integer("num_tokens")

    def longest(asked: Callable[[Group], Formula], cap: Term, reach: Term) -> Term:
        some = changed(
            groups,
            lambda each: replace(each, prefix_cacheable=each.prefix_cacheable & asked(each)),
        )
        return hits.longest_valid_hit(some, alignment, cap, reach, cached, any_valid)

    cap = num_tokens - 1
    reach = further + (num_tokens if policy is LookaheadHorizon.HASHED else cap)
    hit = sequential.longest_joint_hit(groups, alignment, num_tokens, policy, cached, any_valid)
    together = hits.longest_valid_hit(groups, alignment, cap, reach, cached, any_valid)
    first = longest(_is_full, cap, cap + further)
    last = longest(lambda each: not_(_is_full(each)), first, first + further)
    in_turn = sequential.one_pass_suffices(groups) & (policy is LookaheadHorizon.CANDIDATE)
    return Statement(
        (on_edges(at), ("there is a request", 1 <= num_tokens)),
        (in_turn & (hit == last)) | (not_(in_turn) & (hit == together)),
    )


def joint() -> Iterable[Obligation]:
    """Which hit a release's lookup returns."""
    sentences = {
        LookaheadHorizon.CANDIDATE: "Without a margin, a lookup of any number of groups returns "
        "what full attention leaves and then the others, if one pass suffices; if not, the longest "
        "valid hit.",
        LookaheadHorizon.CAPPED: "With a horizon up to the last token a lookup of any number of "
        "groups returns the longest valid hit.",
        LookaheadHorizon.HASHED: "So it does with a horizon as far as tokens are hashed.",
    }
    yield from (*_suffices, *_suffices_only)
    for policy, sentence in sentences.items():
        state = partial(_joint, policy=policy)
        further = Mutant(
            "peeks_further", "So it does if it peeks a token further.", partial(state, further=1)
        )
        name = f"lookup_of_a_release_returns[{policy}]"
        yield Obligation(name, sentence, state, (further,), Opaque)


def no_margin() -> Iterable[Obligation]:
    """What a longer horizon changes, and what holds when the candidate is the horizon."""
    yield from _horizons()
    for kind, lookahead in _LOOKING_AHEAD:
        yield Obligation(
            case_name("no_candidate_survives_a_turn", kind),
            "Without a margin a group that looks ahead never serves the whole candidate. So turns "
            "that are repeated until nothing shrinks leave no hit.",
            partial(_no_full_candidate, kind=kind, lookahead=lookahead),
        )
    for kind, lookahead in _LOOKING_AHEAD:
        yield Obligation(
            case_name("no_margin_only_loses_hits", kind),
            "What a group may serve without a margin it may serve when the horizon stays at the "
            "cap. So nothing unsound is served.",
            partial(_only_loses, kind=kind, lookahead=lookahead),
        )
    for lookahead in lookaheads(FULL):
        yield Obligation(
            case_name("full_attention_serves_what_later_turns_leave", FULL, lookahead),
            "A hit that full attention may serve in its turn it may also serve when a later group "
            "shortens it. So one turn each of it and of one other group ends at a valid hit.",
            partial(_stays_valid, lookahead=lookahead),
        )
    yield from _turn_costs
    yield from joint()


# --- retention_keeps_junctions -------------------------------------------------------------


@obligation(
    "no_sibling_hits_past_the_junction",
    "No sibling hits more of a shared prefix than its junction.",
)
def _no_sibling_hits_more(at: Interpretation) -> Statement:
    length, alignment = at.integer("length"), at.integer("alignment")
    shared, lookahead = at.integer("shared"), at.integer("lookahead_tokens")
    junction = retention.junction_boundary(shared, lookahead, alignment)
    return Statement(
        (
            ("the alignment is at least one token", 1 <= alignment),
            ("a lookahead is not negative", 0 <= lookahead),
            ("a hit is not negative", 0 <= length),
            ("a hit ends on a boundary", is_multiple(length, alignment)),
            ("the hit and its lookahead are shared", length + lookahead <= shared),
        ),
        length <= junction,
    )


@obligation(
    "junction_is_within_the_shared_prefix",
    "The junction is a boundary, and all that its run asks for is shared.",
    lookahead_too_short=("So is that of a shorter lookahead.", {"shorter": 1}),
)
def _junction_is_shared(at: Interpretation, shorter: int = 0) -> Statement:
    """``shorter``: how many tokens shorter the lookahead is for which the junction is kept."""
    alignment, shared = at.integer("alignment"), at.integer("shared")
    lookahead = at.integer("lookahead_tokens")
    junction = retention.junction_boundary(shared, lookahead - shorter, alignment)
    return Statement(
        (
            ("the alignment is at least one token", 1 <= alignment),
            ("a lookahead is not negative", 0 <= lookahead),
            ("there is a junction", 1 <= junction),
        ),
        is_multiple(junction, alignment) & (junction + lookahead <= shared),
    )


@obligation(
    "run_of_junction_is_kept",
    "Each block in the required run of a junction is kept.",
    _SPARSE,
    junction_forgotten=(
        "So it is when only the prompts' own boundaries are kept, as before vLLM 0.26.",
        {"forgotten": True},
    ),
)
def _junction_run_is_kept(
    at: Interpretation, kind: GroupKind, lookahead: int, forgotten: bool = False
) -> Statement:
    block = at.integer("block")
    group, sizes = any_group(at, kind, lookahead)
    replays: list[Term] = [at.integer(n) for n in ("resend", "extension", "junction")]
    kept = replays[:2] if forgotten else replays
    return Statement(
        (
            *sizes,
            ("there is a junction", 1 <= replays[2]),
            ("the block is in its run", hits.in_required_run(group, block, replays[2])),
        ),
        retention.in_retained_mask(group, block, kept, None),
    )


JUNCTIONS = (*_no_sibling_hits_more, *_junction_is_shared, *_junction_run_is_kept)
"""A junction is the hit of the next sibling, and that its run is kept."""


OBLIGATIONS: dict[str, tuple[Obligation, ...]] = {"retention_keeps_junctions": tuple(JUNCTIONS)}
"""The obligations of each claim that is about a policy, by its name."""
