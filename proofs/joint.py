"""The fixed point of the groups' lookups, one arbitrary group at a time.

The groups' lookups shrink a candidate one after the other, in rounds, until all agree on it: a
round runs each group's lookup once, begins with what one of them returned, and ends the iteration
if the others leave that unchanged (`reference.joint`). Each obligation is about one arbitrary
group. That it then holds for each of any number of groups, and for all of them together, is an
argument in words, which no solver checks. Conditions on its lookup are the hypotheses; dropping any
one of them is a mutant.
That each group's lookup meets them is what `lookup_returns_longest_valid_hit` says, where what is
valid must be the same for every candidate: `candidate_only_caps_a_group`. Lengths may be in any
unit. Names of unknowns: ``start`` and ``end`` are the candidate after a round's first lookup and
after its last, ``given`` and ``returned`` that of one lookup in it.
"""

from functools import partial

from hitproof.proofs import releases, several
from hitproof.proofs.cases import KINDS, any_group, obligation
from hitproof.proofs.interpretation import Interpretation
from hitproof.proofs.obligation import Hypotheses, Obligation, Statement
from hitproof.spec import hits
from hitproof.spec.groups import GroupKind
from hitproof.spec.terms import Term, implies

NOT_NEGATIVE = "lookup returns no negative length"
NOT_LONGER = "lookup returns no more than it is given"
VALID = "what lookup returns is valid for its group"
GREATEST = "no hit that is valid for the group, and no longer than given, is longer"


def _lookup(
    at: Interpretation, given: Term, returned: Term, compared: Term, without: str = ""
) -> Hypotheses:
    """What the fixed point takes for granted of a group's lookup, or all of it but one.

    The last condition is about every hit; it is stated for the one it is ``compared`` with.
    """
    valid = at.block_set("valid")
    eligible = valid(compared) & (0 <= compared) & (compared <= given)
    conditions: Hypotheses = (
        (NOT_NEGATIVE, 0 <= returned),
        (NOT_LONGER, returned <= given),
        (VALID, valid(returned)),
        (GREATEST, implies(eligible, compared <= returned)),
    )
    return tuple((why, holds) for why, holds in conditions if why != without)


def _common_hit(at: Interpretation) -> tuple[Term, Hypotheses]:
    """Any hit that is valid for all groups."""
    other, cap = at.integer("other"), at.integer("cap")
    return other, (
        ("a hit is not negative", 0 <= other),
        ("lookup may serve the common hit", other <= cap),
        ("a common hit is valid for the group", at.block_set("valid")(other)),
    )


@obligation(
    "no_common_hit_is_longer_at_the_start",
    "No hit that lookup may serve is longer than the first candidate, the cap.",
)
def _starts(at: Interpretation) -> Statement:
    other, common = _common_hit(at)
    return Statement(common, other <= at.integer("cap"))


@obligation(
    "no_lookup_skips_a_common_hit",
    "A common hit that is no longer than the candidate is no longer than what a group's lookup "
    "makes of it.",
    not_the_greatest=("So it is when lookup returns any valid hit.", {"without": GREATEST}),
)
def _keeps(at: Interpretation, without: str = "") -> Statement:
    other, common = _common_hit(at)
    given, returned = at.integer("given"), at.integer("returned")
    return Statement(
        (
            *common,
            ("the common hit is no longer than the candidate so far", other <= given),
            *_lookup(at, given, returned, other, without),
        ),
        other <= returned,
    )


@obligation(
    "each_round_but_the_last_shrinks_the_candidate",
    "A round that changes the candidate makes it shorter, and never negative. So the iteration "
    "ends.",
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
def _shrinks(at: Interpretation, without: str = "") -> Statement:
    start, given = at.integer("start"), at.integer("given")
    # Small models are of naturals, and this one must be able to go below.
    end = at.integer("end_plus_one") - 1
    bounds = ((NOT_NEGATIVE, 0 <= end), (NOT_LONGER, end <= given))
    return Statement(
        (
            ("the lookups before the last did not lengthen the candidate", given <= start),
            *((why, holds) for why, holds in bounds if why != without),
            ("the round changed the candidate", end != start),
        ),
        (0 <= end) & (end < start),
    )


@obligation(
    "the_last_round_ends_at_a_valid_hit",
    "What a round leaves as it was is valid for each group. With the above it is the longest "
    "common hit.",
    not_valid=("It is when lookup may return a hit that is not valid.", {"without": VALID}),
)
def _ends(at: Interpretation, without: str = "") -> Statement:
    start, end = at.integer("start"), at.integer("end")
    given, returned = at.integer("given"), at.integer("returned")
    return Statement(
        (
            (
                "it is the first, or the lookups before it did not lengthen the candidate",
                (returned == start) | (given <= start),
            ),
            ("nor do those after it", end <= returned),
            *_lookup(at, given, returned, end, without),
            ("the round left the candidate as it was", end == start),
        ),
        at.block_set("valid")(end),
    )


@obligation(
    "lookups_are_monotone",
    "Given a longer candidate, lookup returns no shorter hit. This follows, so it is no further "
    "condition.",
)
def _monotone(at: Interpretation) -> Statement:
    given, returned = at.integer("given"), at.integer("returned")
    longer, returned_then = at.integer("longer"), at.integer("returned_then")
    return Statement(
        (
            *_lookup(at, given, returned, returned_then),
            *_lookup(at, longer, returned_then, returned),
            ("the other candidate is at least as long", given <= longer),
        ),
        returned <= returned_then,
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
        *_ends,
    ),
    "common_hit_is_the_longest": (
        *several.LONGEST,
        *_starts,
        *_keeps,
        *_shrinks,
        *_monotone,
        *releases.no_margin(),
    ),
}
"""The obligations of each claim on the hit of several groups, by its name."""
