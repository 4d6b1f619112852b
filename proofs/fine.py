"""The theorems on hits that end inside blocks (`spec.releases.fine`).

``unit``, ``entry`` and ``length`` are in hash units, ``units`` is the number of hash units in a
block, ``block`` and ``boundary`` are in blocks; ``prompt`` and ``hash_block_size`` are in tokens.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from hitproof.proofs.cases import CASES, FULL, MAMBA, case_name, holds_token, obligation
from hitproof.proofs.interpretation import Interpretation, Opaque
from hitproof.proofs.obligation import Hypotheses, Mutant, Obligation, Statement
from hitproof.proofs.several import alike, may_serve, some_group, taking_part
from hitproof.spec import hits
from hitproof.spec.groups import BlockGeometry, Group, GroupKind, geometry
from hitproof.spec.releases import fine
from hitproof.spec.releases.fine import FineTail, HitGranularity
from hitproof.spec.releases.horizons import LookaheadHorizon
from hitproof.spec.terms import (
    Formula,
    Term,
    choose,
    for_all,
    for_each,
    implies,
    is_multiple,
    not_,
)

_FINE_CASES = tuple((kind, n) for kind, n in CASES if kind in fine.FINE_KINDS)


# --- which entries back a hit --------------------------------------------------------------


def _unit(at: Interpretation) -> tuple[Term, Term, Callable[..., Formula], Hypotheses]:
    """Any hash unit, the size of its block, and which entries back it."""
    unit, units, block = at.integer("unit"), at.integer("units"), at.integer("block")
    hypotheses = (
        ("a block is at least one hash unit", 1 <= units),
        ("the unit is one of a request", 0 <= unit),
        ("the block holds the unit", holds_token(block, unit, units)),
    )

    def backs(kind: GroupKind, entry: Term) -> Formula:
        if kind is MAMBA:
            return entry == unit
        return (unit <= entry) & holds_token(block, entry, units)

    return unit, units, backs, hypotheses


def _no_entry_no_hold(at: Interpretation, kind: GroupKind) -> Statement:
    unit, units, backs, hypotheses = _unit(at)
    reach, entries = at.integer("horizon"), at.block_set("entries")

    def is_absent(entry: Term) -> Formula:
        return implies(backs(kind, entry), not_(entries(entry)))

    return Statement(
        (*hypotheses, ("no entry backs it", for_all(0, reach, is_absent))),
        not_(fine.is_held(kind, unit, units, reach, entries)),
    )


def _entry_holds(at: Interpretation, kind: GroupKind) -> Statement:
    unit, units, backs, hypotheses = _unit(at)
    reach, entries, entry = at.integer("horizon"), at.block_set("entries"), at.integer("entry")
    return Statement(
        (
            *hypotheses,
            ("the entry backs the unit", backs(kind, entry)),
            ("it is cached", entries(entry)),
            ("the lookup may peek that far", entry < reach),
        ),
        fine.is_held(kind, unit, units, reach, entries),
    )


def _more_entries_hold(at: Interpretation, kind: GroupKind) -> Statement:
    unit, units, _, hypotheses = _unit(at)
    reach, entries, more = at.integer("horizon"), at.block_set("entries"), at.block_set("more")
    grows = for_all(0, reach, lambda entry: implies(entries(entry), more(entry)))
    return Statement(
        (
            *hypotheses,
            ("the unit is held", fine.is_held(kind, unit, units, reach, entries)),
            ("what is entered stays entered", grows),
        ),
        fine.is_held(kind, unit, units, reach, more),
    )


def _hit_has_its_entry(
    at: Interpretation, kind: GroupKind, lookahead: int, shorter: int = 0
) -> Statement:
    """``shorter``: how many hash units before the end of its last one the hit ends."""
    unit, units, backs, hypotheses = _unit(at)
    entries, held = at.block_set("entries"), at.block_set("held")
    cap, horizon = at.integer("cap"), at.integer("horizon")
    group = BlockGeometry(kind, 1, 0, lookahead)
    reach = fine.peek(Group(kind, 1, eagle=bool(lookahead)), cap, horizon)
    length = unit + 1 - shorter

    def is_absent(entry: Term) -> Formula:
        return implies(backs(kind, entry), not_(entries(entry)))

    return Statement(
        (
            *hypotheses,
            ("the hit is not empty", 1 <= length),
            ("a lookup peeks past the cap at most", cap <= horizon),
            (
                "its last unit is held if and only if an entry backs it",
                held(unit) == fine.is_held(kind, unit, units, reach, entries),
            ),
            ("no entry backs it", for_all(0, horizon, is_absent)),
        ),
        not_(hits.valid_boundary(group, length, cap, horizon, held)),
    )


@obligation(
    "hits_end_inside_blocks_only_if_each_group_can",
    "Hits end on hash units only if each of any number of groups that take part has such hits, or "
    "blocks of one hash unit, and some Mamba group has larger blocks.",
)
def _only_if_all_can(at: Interpretation) -> Statement:
    groups, _, group, hypotheses = taking_part(at)
    unit = at.integer("hash_block_size")
    none_large = for_each(groups, lambda _, each: not_(_is_large_state(each, unit)))
    fine_grained = fine.is_fine_grained(groups, unit)
    return Statement(hypotheses, implies(fine_grained, _can(group, unit) & not_(none_large)))


@obligation(
    "hits_end_inside_blocks_if_each_group_can",
    "They do if each group can, and some Mamba group that takes part has blocks of more than a "
    "hash unit.",
)
def _if_all_can(at: Interpretation) -> Statement:
    groups, _, group, hypotheses = taking_part(at)
    unit = at.integer("hash_block_size")

    def can(_: Term, each: Group) -> Formula:
        return not_(each.prefix_cacheable) | _can(each, unit)

    return Statement(
        (
            *hypotheses,
            ("it is of states that are larger", _is_large_state(group, unit)),
            ("each group can", for_each(groups, can)),
        ),
        fine.is_fine_grained(groups, unit),
    )


def _can(group: Group, unit: Term) -> Formula:
    """Whether the group's lookup has hits inside blocks, or its blocks are one hash unit."""
    return (group.kind == FULL) | (group.kind == MAMBA) | (group.block_size == unit)


def _is_large_state(group: Group, unit: Term) -> Formula:
    return group.prefix_cacheable & (group.kind == MAMBA) & (unit < group.block_size)


@obligation(
    "fine_hits_end_on_hash_units",
    "Where any number of groups have them, hits end on hash units if the release has such hits; "
    "otherwise on the least common block edges.",
    [(policy,) for policy in HitGranularity],
)
def _ends(at: Interpretation, kind: HitGranularity) -> Statement:
    other, unit = at.compared("other"), at.integer("hash_block_size")
    groups, _, group, hypotheses = taking_part(at)
    fine_grained = fine.is_fine_grained(groups, unit) if kind is HitGranularity.FINE else False
    on_edges = for_each(
        groups, lambda _, each: not_(each.prefix_cacheable) | is_multiple(other, each.block_size)
    )
    ends = fine.hit_alignment(groups, unit, kind)
    aligned = (1 <= ends) & (ends <= other) & is_multiple(ends, group.block_size)
    return Statement(
        (
            *hypotheses,
            ("a length is positive", 1 <= other),
            ("it ends on a block edge in each group", on_edges),
        ),
        (fine_grained & (ends == unit)) | (not_(fine_grained) & aligned),
    )


@obligation(
    "at_hash_units_only_blocks_are_others",
    "On hash units, a group is as before but for its blocks, which are hash units.",
    blocks_stay=("Its blocks are as before, too.", {"stay": True}),
)
def _on_hash_units(at: Interpretation, stay: bool = False) -> Statement:
    groups, (index, exists) = at.groups(), some_group(at)
    group, unit = groups[index], at.integer("less_than_hash_block_size") + 1
    then = fine.at_hash_units(group, unit)
    size = group.block_size if stay else unit
    same = alike(replace(then, block_size=group.block_size), group)
    return Statement(
        (*exists, ("a hash unit has a token", 1 <= unit)),
        (then.block_size == size) & same & (then.eagle == group.eagle),
    )


# --- hits of any number of groups ----------------------------------------------------------


def _in_units(at: Interpretation) -> tuple[Term, Term, Term, Callable[..., Formula], Hypotheses]:
    """A hash unit, cap and horizon, and what is held: any units, of any group, with these."""
    size, cap, horizon = (at.integer(n) for n in ("hash_block_size", "cap", "horizon"))
    held = at.block_sets("held")

    def holds(groups: Any, *told: Any) -> Formula:
        *numbers, entries, index, unit = told
        asked = groups[index].block_size == at.groups()[index].block_size
        for number, given in zip(numbers, (size, cap, horizon), strict=True):
            asked &= number == given
        return asked & held(index, unit) & entries(index, unit)

    return size, cap, horizon, holds, (("a hash unit has a token", 1 <= size),)


def _served(
    at: Interpretation, length: Term
) -> tuple[Formula, Callable[[Term, Group], Formula], Hypotheses]:
    """Whether a hit is valid, and whether a group may serve it and holds what it requires."""
    size, cap, horizon, holds, hypotheses = _in_units(at)
    groups, entries, held = at.groups(), at.block_sets("entries"), at.block_sets("held")
    valid = fine.valid_fine_hit(groups, size, length, cap, horizon, entries, holds)

    def serves(index: Term, group: Group) -> Formula:
        return may_serve(
            geometry(replace(group, block_size=size), size),
            length // size,
            cap // size,
            horizon // size,
            lambda unit: held(index, unit) & entries(index, unit),
        )

    return valid, serves, hypotheses


@obligation(
    "each_group_serves_a_valid_fine_hit",
    "A valid fine-grained hit ends on a hash unit, and each of any number of groups that take part "
    "may serve it and holds every hash unit that it requires.",
)
def _served_by_each(at: Interpretation) -> Statement:
    length, size = at.integer("length"), at.integer("hash_block_size")
    _, index, group, exists = taking_part(at)
    valid, serves, hypotheses = _served(at, length)
    return Statement(
        (*exists, *hypotheses, ("the hit is not empty", length != 0), ("it is valid", valid)),
        (0 <= length) & is_multiple(length, size) & serves(index, group),
    )


@obligation(
    "a_fine_hit_that_each_group_serves_is_valid",
    "A fine-grained hit on a hash unit is valid if each of any number of groups that take part may "
    "serve it and holds every hash unit that it requires. No hit is valid, too.",
)
def _served_by_all(at: Interpretation) -> Statement:
    length, size = at.integer("length"), at.integer("hash_block_size")
    valid, serves, hypotheses = _served(at, length)
    served = for_each(at.groups(), lambda i, each: implies(each.prefix_cacheable, serves(i, each)))
    aligned = (0 <= length) & is_multiple(length, size)
    is_served = (length == 0) | (aligned & served)
    return Statement((*hypotheses, ("the hit is empty, or served by each", is_served)), valid)


def _read_has_an_entry(at: Interpretation, kind: GroupKind, further: int = 0) -> Statement:
    """``further``: how many hash units past what the hit requires."""
    size, cap, horizon, _, hypotheses = _in_units(at)
    length, unit, block = (at.integer(name) for name in ("length", "unit", "block"))
    groups, index, group, exists = taking_part(at)
    entries, held = at.block_sets("entries"), at.block_sets("held")
    valid = fine.valid_fine_hit(
        groups, size, length, cap, horizon, entries, lambda *told: held(*told[-2:])
    )
    units = group.block_size // size
    shape, reach = geometry(replace(group, block_size=size), size), at.integer("reach")
    seen = choose(group.eagle, lambda: horizon, lambda: cap)
    is_held = fine.holds_unit(groups, size, cap, horizon, entries, index, unit)

    def is_absent(entry: Term) -> Formula:
        backs = entry == unit if kind is MAMBA else unit <= entry
        return implies(backs & holds_token(block, entry, units), not_(entries(index, entry)))

    return Statement(
        (
            *exists,
            *hypotheses,
            ("it is of the kind", group.kind == kind),
            ("a block is some hash units", 1 <= units),
            ("a lookup peeks this far", reach == seen // size),
            ("the hit is not empty", 1 <= length),
            ("it is valid", valid),
            (
                "the unit is required",
                hits.in_required_run(shape, unit - further, length // size),
            ),
            ("the block holds it", holds_token(block, unit, units)),
            ("a unit is held as its entries say", held(index, unit) == is_held),
        ),
        not_(for_all(0, reach, is_absent)),
    )


def _vouched_by_entries() -> Iterable[Obligation]:
    for kind in fine.FINE_KINDS:
        state = partial(_read_has_an_entry, kind=kind)
        what = "at or past its end in its block" if kind is FULL else "at its end"
        yield Obligation(
            case_name("what_a_fine_hit_requires_has_an_entry", kind),
            "Of any number of groups, each of the kind that takes part has, for each hash unit "
            f"that a valid fine-grained hit requires, an entry {what} that lookup may ask for.",
            state,
            (
                Mutant(
                    "one_unit_further",
                    "So it has for the hash unit after one that is required.",
                    partial(state, further=1),
                ),
            ),
        )


@obligation(
    "a_unit_is_held_as_far_as_its_group_peeks",
    "Whether a hash unit of one of any number of groups is held depends on the entries up to the "
    "cap, or with EAGLE up to the horizon.",
    to_the_cap=("It depends on those up to the cap, with EAGLE or without.", {"to_the_cap": True}),
)
def _held_as_far(at: Interpretation, to_the_cap: bool = False) -> Statement:
    size, cap, horizon, _, hypotheses = _in_units(at)
    groups, index, group, exists = taking_part(at)
    entries, unit = at.block_sets("entries"), at.integer("unit")
    reach = cap if to_the_cap else choose(group.eagle, lambda: horizon, lambda: cap)
    told = group.kind, unit, group.block_size // size, reach // size
    return Statement(
        (*exists, *hypotheses),
        fine.holds_unit(groups, size, cap, horizon, entries, index, unit)
        == fine.is_held(*told, lambda entry: entries(index, entry)),
    )


@obligation(
    "witness_entries_are_those_that_hold_a_unit",
    "A hash unit of one of any number of groups is held if and only if one of its witness entries "
    "is cached.",
    but_the_last=("It is if and only if one but the last is.", {"last": 1}),
)
def _witnesses(at: Interpretation, last: int = 0) -> Statement:
    size, horizon, unit = (at.integer(n) for n in ("hash_block_size", "horizon", "unit"))
    _, index, group, exists = taking_part(at)
    entries = at.block_sets("entries")
    of_unit = fine.witness_entries(group, size, unit, horizon)
    end = of_unit.stop - last
    none = for_all(of_unit.start, end, lambda entry: not_(entries(index, entry)))
    told = group.kind, unit, group.block_size // size, horizon // size
    held = fine.is_held(*told, lambda entry: entries(index, entry))
    return Statement((*exists, ("a hash unit has a token", 1 <= size)), held == not_(none))


def _longest(at: Interpretation) -> Statement:
    other, (size, cap, horizon, holds, hypotheses) = at.compared("other"), _in_units(at)
    groups, entries = at.groups(), at.block_sets("entries")
    hit = fine.longest_fine_hit(groups, size, cap, horizon, entries, holds)

    def is_valid(length: Term) -> Formula:
        return fine.valid_fine_hit(groups, size, length, cap, horizon, entries, holds)

    return Statement(
        (
            *hypotheses,
            ("another hit is within the cap", (1 <= other) & (other <= cap)),
            ("it is valid", is_valid(other)),
        ),
        (other <= hit) & (hit <= cap) & is_valid(hit),
    )


LONGEST = Obligation(
    "no_valid_fine_hit_is_longer",
    "If any fine-grained hit of any number of groups is valid, the longest one is, it is within "
    "the cap, and no other is longer.",
    _longest,
    interpretation=Opaque,
)


def _vouched_for() -> Iterable[Obligation]:
    """A hit is served if and only if cache entries back what it reads."""
    for kind in fine.FINE_KINDS:
        which = "at or past its end in its block" if kind is FULL else "at its end"
        yield Obligation(
            case_name("held_unit_has_an_entry", kind),
            f"A hash unit is held only when an entry {which} is cached.",
            partial(_no_entry_no_hold, kind=kind),
        )
        yield Obligation(
            case_name("entry_holds_its_unit", kind),
            f"A cached entry {which} holds the hash unit, if the lookup may peek as far.",
            partial(_entry_holds, kind=kind),
        )
        yield Obligation(
            case_name("more_entries_hold_as_much", kind),
            "A hash unit stays held when more entries are cached.",
            partial(_more_entries_hold, kind=kind),
        )
    for kind, lookahead in _FINE_CASES:
        what = "an entry of its last block at or past its end"
        what = what if kind is FULL else "the state as of exactly its last token"
        state = partial(_hit_has_its_entry, kind=kind, lookahead=lookahead)
        yield Obligation(
            case_name("fine_hit_has_its_entry", kind, lookahead),
            f"A group may serve a fine-grained hit only when {what} is cached.",
            state,
            (
                Mutant(
                    "one_unit_further",
                    "Only when an entry is cached that backs the hash unit past it.",
                    partial(state, shorter=1 + lookahead),
                ),
            ),
        )


# --- on block edges ------------------------------------------------------------------------


def _both_views(
    at: Interpretation, kind: GroupKind, lookahead: int
) -> tuple[BlockGeometry, Term, Term]:
    """A group, in blocks or in hash units, with a boundary in each."""
    units, boundary = at.integer("units"), at.integer("boundary")
    (boundary - 1) * units  # named, so that the axioms of products speak of it
    return BlockGeometry(kind, 1, 0, lookahead), boundary, boundary * units


def _asks_for_no_other_block(at: Interpretation, kind: GroupKind, lookahead: int) -> Statement:
    unit, units = at.integer("unit"), at.integer("units")
    group, boundary, length = _both_views(at, kind, lookahead)
    required = hits.in_required_run(group, unit, length)
    return Statement(
        (
            ("a block is at least one hash unit", 1 <= units),
            ("the hit is not empty", 1 <= boundary),
            ("the unit is required for the fine-grained hit", required),
        ),
        hits.in_required_run(group, fine.block_of(unit, units), boundary),
    )


def _asks_for_each_block(at: Interpretation, kind: GroupKind, lookahead: int) -> Statement:
    block, units = at.integer("block"), at.integer("units")
    group, boundary, length = _both_views(at, kind, lookahead)
    return Statement(
        (
            ("a block is at least one hash unit", 1 <= units),
            ("the hit is not empty", 1 <= boundary),
            ("the block is required", hits.in_required_run(group, block, boundary)),
        ),
        hits.in_required_run(group, fine.witness_unit(kind, block, units), length),
    )


def _peeks_no_further(
    at: Interpretation, kind: GroupKind, lookahead: int, converse: bool = False
) -> Statement:
    units = at.integer("units")
    group, boundary, length = _both_views(at, kind, lookahead)
    fine_end, aligned_end = hits.run_end(group, length), hits.run_end(group, boundary) * units
    return Statement(
        (("a block is at least one hash unit", 1 <= units), ("a hit", 0 <= boundary)),
        aligned_end <= fine_end if converse else fine_end <= aligned_end,
    )


def _on_block_edges() -> Iterable[Obligation]:
    """On block edges fine-grained hits are the aligned ones, when only blocks are entered."""
    for kind, lookahead in _FINE_CASES:
        case: dict[str, Any] = {"kind": kind, "lookahead": lookahead}
        yield Obligation(
            case_name("fine_hit_on_a_block_edge_asks_for_no_other_block", kind, lookahead),
            "Each hash unit that a fine-grained hit on a block edge requires lies in a block that "
            "the aligned hit requires. So an aligned hit is a fine-grained one.",
            partial(_asks_for_no_other_block, **case),
        )
        yield Obligation(
            case_name("fine_hit_on_a_block_edge_asks_for_each_block", kind, lookahead),
            "Of each block that an aligned hit requires, a fine-grained hit on the same block edge "
            "asks for a hash unit. So where only whole blocks are entered it is an aligned one.",
            partial(_asks_for_each_block, **case),
        )
        if lookahead:
            as_far = partial(_peeks_no_further, **case, converse=True)
            yield Obligation(
                case_name("fine_hit_peeks_no_further", kind, lookahead),
                "On a block edge a fine-grained hit peeks no further than the aligned one.",
                partial(_peeks_no_further, **case),
                (Mutant("as_far", "It peeks as far.", as_far),),
            )


# --- the end of a prompt -------------------------------------------------------------------


def _tail(
    at: Interpretation, tail: FineTail, policy: LookaheadHorizon
) -> tuple[Term, Term, Term, Term, Hypotheses]:
    """Any prompt and the hit that its end is kept for."""
    prompt, lookahead = at.integer("prompt"), at.integer("lookahead_tokens")
    size, covered = at.integer("hash_block_size"), at.integer("hash_lookahead_tokens")
    kept = fine.tail_boundary(tail, policy, prompt, lookahead, size, covered)
    return (
        kept,
        prompt,
        lookahead,
        size,
        (
            ("a hash unit is at least one token", 1 <= size),
            ("a lookahead is not negative", 0 <= lookahead),
            ("a hash covers no less than its block", 0 <= covered),
            ("a prompt has a token", 1 <= prompt),
        ),
    )


def _tail_is_the_longest(at: Interpretation, tail: FineTail, policy: LookaheadHorizon) -> Statement:
    kept, prompt, lookahead, size, hypotheses = _tail(at, tail, policy)
    length, covered = at.integer("length"), at.integer("hash_lookahead_tokens")
    resent = tail is FineTail.RESEND
    cap = prompt - 1 if resent else prompt
    reach = cap if policy is LookaheadHorizon.CAPPED else prompt
    return Statement(
        (
            *hypotheses,
            ("a hit is not negative", 0 <= length),
            ("it ends on a hash block", is_multiple(length, size)),
            ("it stays within the cap", length <= cap),
            ("its hash covers tokens of the resend", length + (covered if resent else 0) <= prompt),
            ("its lookahead stays within the horizon", length + lookahead <= reach),
        ),
        length <= kept,
    )


def _extension_goes_on(
    at: Interpretation, policy: LookaheadHorizon, converse: bool = False
) -> Statement:
    resend, *_, hypotheses = _tail(at, FineTail.RESEND, policy)
    extension, *_ = _tail(at, FineTail.EXTENSION, policy)
    return Statement(hypotheses, extension <= resend if converse else resend <= extension)


def tails() -> Iterable[Obligation]:
    """The end of a prompt is kept for the longest hit of a resend or an extension."""
    capped, hashed = LookaheadHorizon.CAPPED, LookaheadHorizon.HASHED
    tails = ((FineTail.EXTENSION, hashed), (FineTail.RESEND, capped), (FineTail.RESEND, hashed))
    for tail, policy in tails:
        yield Obligation(
            f"tail_is_the_longest_hit[{tail}, {policy}]",
            f"No hit of {'a resend' if tail is FineTail.RESEND else 'an extension'} that ends on a "
            "hash block is longer than the one that the end of the prompt is kept for.",
            partial(_tail_is_the_longest, tail=tail, policy=policy),
        )
    for policy in (capped, hashed):
        as_long = partial(_extension_goes_on, policy=policy, converse=True)
        yield Obligation(
            f"extension_goes_on_from_the_tail_of_a_resend[{policy}]",
            "What is kept for a resend is no longer than what is kept for an extension, so that an "
            "extension can go on from it.",
            partial(_extension_goes_on, policy=policy),
            (Mutant("as_long", "It is as long.", as_long),),
        )


OBLIGATIONS: dict[str, tuple[Obligation, ...]] = {
    "fine_grained_hit_is_vouched_for": (
        *_only_if_all_can,
        *_if_all_can,
        *_ends,
        *_on_hash_units,
        *_vouched_for(),
        *_served_by_each,
        *_served_by_all,
        *_held_as_far,
        *_witnesses,
        *_vouched_by_entries(),
        LONGEST,
        *_on_block_edges(),
    )
}
"""The obligations of the claim on hits inside blocks, by its name."""
