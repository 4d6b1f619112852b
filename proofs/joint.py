"""The fixed point of the groups' lookups, for any number of groups, by induction over their turns.

The groups' lookups shrink a candidate one after the other, over and over, until as many in a row as
there are groups leave it as it is, or nothing is left of it (`reference.spec_groups`). ``turn`` is
the index of the group whose turn is next, and ``agreed`` how many lookups in a row have returned
what the candidate is. That each lookup keeps its contract is what
`lookup_returns_longest_valid_hit` says, where what is valid must be the same for every candidate:
`candidate_only_caps_a_group`. A group that opts out of prefix caching serves any hit, so that its
turn changes nothing. Lengths may be in any unit. Unknowns that end in ``_before`` are those of a
turn earlier.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from hitproof.proofs import releases, several
from hitproof.proofs.cases import KINDS, any_group, obligation
from hitproof.proofs.interpretation import Interpretation, Opaque
from hitproof.proofs.obligation import Hypotheses, Mutant, Obligation, Statement, chain, taken
from hitproof.proofs.several import any_valid, on_edges
from hitproof.spec import hits
from hitproof.spec.groups import Group, GroupKind
from hitproof.spec.terms import Family, Formula, Term, choose, for_each, implies

NOT_NEGATIVE = "lookup returns no negative length"
NOT_LONGER = "lookup returns no more than it is given"
VALID = "what lookup returns is valid for its group"
GREATEST = "no hit that is valid for the group, and no longer than given, is longer"


def _state(at: Interpretation, when: str = "") -> tuple[Term, Term, Term]:
    """The candidate, how many lookups agree on it, and whose turn is next."""
    candidate = at.integer(f"candidate{when}")
    return candidate, at.integer(f"agreed{when}"), at.integer(f"turn{when}")


def _holds(at: Interpretation, when: str = "") -> Formula:
    """The invariant: the last lookups, as many as agree, find the candidate valid.

    And no common hit is longer.
    """
    (candidate, agreed, turn), number = _state(at, when), at.integer("num_groups")
    groups, valid, other = at.groups(), at.block_sets("valid"), at.integer("other")
    cap = at.integer("cap")

    def agrees(index: Term, _: Group) -> Formula:
        turns_ago = choose(index < turn, lambda: turn - index, lambda: turn - index + number)
        return implies(turns_ago <= agreed, valid(index, candidate))

    common = for_each(groups, lambda index, _: valid(index, other))
    return (
        ((0 <= candidate) & (candidate <= cap))
        & ((0 <= agreed) & (agreed <= number))
        & ((0 <= turn) & (turn < number))
        & for_each(groups, agrees)
        & implies(common & (0 <= other) & (other <= cap), other <= candidate)
    )


def _turn(at: Interpretation, without: str, restarts_at: int) -> Hypotheses:
    """What one turn does, with all that is taken for granted of a lookup or all of it but one."""
    given, agreed_before, turn = _state(at, "_before")
    found, agreed, turn_then = _state(at)
    at.groups()[turn]  # what is said of each group is said of this one
    valid, other = at.block_sets("valid"), at.integer("other")
    eligible = valid(turn, other) & (0 <= other) & (other <= given)
    contract = (
        (NOT_NEGATIVE, 0 <= found),
        (NOT_LONGER, found <= given),
        (VALID, valid(turn, found)),
        (GREATEST, implies(eligible, other <= found)),
    )
    again = choose(found == given, lambda: agreed_before + 1, lambda: restarts_at)
    following = choose(turn + 1 == at.integer("num_groups"), lambda: 0, lambda: turn + 1)
    going = (agreed_before < at.integer("num_groups")) & (1 <= given)
    return (
        *((why, holds) for why, holds in contract if why != without),
        ("the turns had not ended", going),
        ("one more agrees, or this one alone", agreed == again),
        ("the turn of the next group follows", turn_then == following),
    )


def _always(at: Interpretation, without: str = "", restarts_at: int = 1) -> Statement:
    step, number = at.integer("step"), at.integer("num_groups")
    (candidate, agreed, turn), cap = _state(at), at.integer("cap")
    turn_before = at.integer("turn_before")

    def given() -> Hypotheses:
        begins = (candidate == cap) & (agreed == 0) & (turn == 0)
        return (
            ("turns are counted from the start", 0 <= step),
            ("a turn is that of some group", (0 <= turn_before) & (turn_before < number)),
            ("at the start the candidate is the cap", implies(step == 0, begins)),
            *((why, implies(1 <= step, h)) for why, h in _turn(at, without, restarts_at)),
            ("it held a turn before", implies(1 <= step, _holds(at, "_before"))),
        )

    some = (("there is a group", 1 <= number), ("the cap is not negative", 0 <= cap))
    return Statement(some, _holds(at), given)


ALWAYS = Obligation(
    "the_last_lookups_agree_on_the_candidate_after_each_turn",
    "After each turn of the lookups of any number of groups, the candidate is valid for each group "
    "whose lookup agrees on it, and no hit within the cap that is valid for all groups is longer. "
    "Induction over the turns.",
    _always,
    (
        *(
            Mutant(
                name, f"So it is without the condition that {why}.", partial(_always, without=why)
            )
            for name, why in (
                ("lookup_lengthens", NOT_LONGER),
                ("not_valid", VALID),
                ("not_the_greatest", GREATEST),
            )
        ),
        Mutant(
            "counts_one_more",
            "So it is if a lookup that shrinks the candidate counts twice.",
            partial(_always, restarts_at=2),
        ),
    ),
)


@obligation(
    "each_turn_brings_the_end_nearer",
    "A turn shrinks the candidate, which is never negative, or leaves it and lets one more of the "
    "groups agree. So the turns end.",
    lookup_lengthens=(
        "It does when lookup may return more than it is given, as with a Mamba group "
        "that is given a token more for EAGLE.",
        {"without": NOT_LONGER},
    ),
    lookup_below_zero=(
        "It does when lookup may return a negative length.",
        {"without": NOT_NEGATIVE},
    ),
)
def _ends(at: Interpretation, without: str = "") -> Statement:
    given, agreed_before, _ = _state(at, "_before")
    number, agreed = at.integer("num_groups"), at.integer("agreed")
    # Small models are of naturals, and this one must be able to go below.
    found = at.integer("found_plus_one") - 1
    bounds = ((NOT_NEGATIVE, 0 <= found), (NOT_LONGER, found <= given))
    again = choose(found == given, lambda: agreed_before + 1, lambda: 1)
    return Statement(
        (
            *((why, holds) for why, holds in bounds if why != without),
            ("not all agree yet", (0 <= agreed_before) & (agreed_before < number)),
            ("one more agrees, or this one alone", agreed == again),
        ),
        (0 <= found)
        & (agreed <= number)
        & ((found < given) | ((found == given) & (agreed_before < agreed))),
    )


class _One(Family):
    """One of the groups, with its index."""

    def __init__(self, groups: Any, index: Term) -> None:
        self._index, self._group = index, groups[index]

    def for_each(self, holds: Callable[[Term, Group], Formula]) -> Formula:
        """What holds of it."""
        return holds(self._index, self._group)


def _is_valid(at: Interpretation, length: Term, groups: Any) -> Formula:
    """Whether a hit is valid for some of the groups, whatever decides on it in each."""
    told = at.integer("alignment"), length, at.integer("cap"), at.integer("horizon")
    return hits.valid_hit(groups, *told, at.block_sets("cached"), any_valid)


def _have_ended(at: Interpretation, early: bool = False) -> Hypotheses:
    candidate, agreed, _ = _state(at)
    number, cap = at.integer("num_groups"), at.integer("cap")
    at.groups()[0]  # what is said of each group is said of this one
    all_agree = number <= agreed + early
    return (
        ("there is a group", 1 <= number),
        ("the cap is not negative", 0 <= cap),
        on_edges(at),
        ("all groups agree, or nothing is left", all_agree | (candidate == 0)),
    )


def _is_common(at: Interpretation, early: bool = False) -> Statement:
    candidate, other, cap = at.integer("candidate"), at.integer("other"), at.integer("cap")
    groups, within = at.groups(), (0 <= other) & (other <= cap)
    valid, other_is_valid = (_is_valid(at, length, groups) for length in (candidate, other))

    def alone(index: Term, length: Term) -> Formula:
        return _is_valid(at, length, _One(groups, index))

    return Statement(
        _have_ended(at, early),
        valid & (candidate <= cap) & implies(other_is_valid & within, other <= candidate),
        lambda: (taken(at, ALWAYS, valid=alone),),
    )


COMMON = Obligation(
    "the_turns_end_with_a_valid_hit_and_none_is_longer",
    "When all groups agree, or nothing is left, the candidate is a hit that is valid for any "
    "number of groups together, and none within the cap is longer.",
    _is_common,
    (Mutant("one_early", "So it is when all but one agree.", partial(_is_common, early=True)),),
)


def _is_longest(at: Interpretation) -> Statement:
    candidate = at.compared("candidate")
    told = at.groups(), at.integer("alignment"), at.integer("cap"), at.integer("horizon")
    hit = hits.longest_valid_hit(*told, at.block_sets("cached"), any_valid)
    return Statement(_have_ended(at), candidate == hit, lambda: (taken(at, COMMON, other=hit),))


LONGEST = Obligation(
    "the_turns_end_with_what_lookup_must_return",
    "So the turns end with the longest hit that is valid for all groups.",
    _is_longest,
    interpretation=Opaque,
)


@obligation(
    "candidate_only_caps_a_group",
    "A hit that a group may serve within the candidate is one that it may serve within the cap "
    "and that is no longer than the candidate, if the lookahead horizon stays.",
    [(kind,) for kind in KINDS],
    horizon_shrinks=("It is when the candidate is the horizon, too.", {"horizon_shrinks": True}),
)
def _candidate_only_caps(
    at: Interpretation, kind: GroupKind, horizon_shrinks: bool = False
) -> Statement:
    lookahead = at.integer("lookahead")
    group, sizes = any_group(at, kind, lookahead)
    boundary, given = at.integer("boundary"), at.integer("given")
    cap, horizon = at.integer("cap"), at.integer("horizon")
    valid = partial(hits.valid_boundary, group, boundary, cached=at.block_set("cached"))
    seen = given if horizon_shrinks else horizon
    return Statement(
        (
            *sizes,
            ("the hit is not empty", 1 <= boundary),
            ("a lookahead is not negative", 0 <= lookahead),
            ("the candidate is within the cap", given <= cap),
        ),
        valid(cap_blocks=given, horizon_blocks=seen)
        == (valid(cap_blocks=cap, horizon_blocks=horizon) & (boundary <= given)),
    )


OBLIGATIONS: dict[str, tuple[Obligation, ...]] = {
    "common_hit_is_valid_for_every_group": (
        *several.ALIGNMENT,
        *several.VALIDITY,
        *several.soundness(),
        *_candidate_only_caps,
        ALWAYS,
        COMMON,
    ),
    "common_hit_is_the_longest": (*several.LONGEST, *chain(LONGEST), *_ends, *releases.no_margin()),
}
"""The obligations of each claim on the hit of several groups, by its name."""
