"""Which groups drop a lookahead block, among any number of groups.

Groups are numbers from 0 to ``groups``. ``flagged`` are those that hold a draft layer, ``alike``
those that are looked up together with the group in question, itself included.
"""

from collections.abc import Callable

from hitproof.proofs.cases import obligation
from hitproof.proofs.interpretation import Interpretation
from hitproof.proofs.obligation import Hypotheses, Statement
from hitproof.spec.groups import drops_block
from hitproof.spec.terms import Formula, Term, for_all, implies, not_

_Members = Callable[[Term], Formula]


def _nobody(at: Interpretation, members: _Members) -> Formula:
    return for_all(0, at.integer("groups"), lambda group: not_(members(group)))


def _somebody_alike(at: Interpretation, members: _Members) -> Formula:
    alike = at.block_set("alike")
    return not_(_nobody(at, lambda group: alike(group) & members(group)))


def _drops(at: Interpretation, use_eagle: Formula, members: _Members) -> Formula:
    return drops_block(use_eagle, _somebody_alike(at, members), _nobody(at, members))


def _use_eagle(at: Interpretation) -> Formula:
    return 1 <= at.integer("use_eagle")


def _some_group(at: Interpretation) -> Hypotheses:
    """Any one of the groups, looked up together with itself at least."""
    group = at.integer("group")
    return (
        ("it is one of the groups", (0 <= group) & (group < at.integer("groups"))),
        ("a group is looked up together with itself", at.block_set("alike")(group)),
    )


@obligation("nobody_drops_without_eagle", "With EAGLE off no group drops a block, flagged or not.")
def _off_drops_nobody(at: Interpretation) -> Statement:
    use_eagle, flagged = _use_eagle(at), at.block_set("flagged")
    return Statement(
        (*_some_group(at), ("EAGLE is off", not_(use_eagle))), not_(_drops(at, use_eagle, flagged))
    )


@obligation(
    "everybody_drops_when_nobody_is_flagged",
    "With EAGLE on and no group flagged, every group drops a block.",
)
def _nobody_flagged_is_everybody(at: Interpretation) -> Statement:
    use_eagle, flagged = _use_eagle(at), at.block_set("flagged")
    return Statement(
        (
            *_some_group(at),
            ("EAGLE is on", use_eagle),
            ("no group is flagged", _nobody(at, flagged)),
        ),
        _drops(at, use_eagle, flagged),
    )


@obligation(
    "flag_is_shared_by_those_looked_up_together",
    "With EAGLE on a group drops a block when one that it is looked up together with is flagged.",
)
def _flag_is_shared(at: Interpretation) -> Statement:
    use_eagle, flagged = _use_eagle(at), at.block_set("flagged")
    hypotheses, other = _some_group(at), at.integer("other")
    return Statement(
        (
            *hypotheses,
            ("EAGLE is on", use_eagle),
            ("the other is one of the groups, too", (0 <= other) & (other < at.integer("groups"))),
            ("the other group is flagged", flagged(other)),
            ("the two are looked up together", at.block_set("alike")(other)),
        ),
        _drops(at, use_eagle, flagged),
    )


@obligation(
    "others_keep_their_blocks",
    "A group drops no block when some group is flagged, but none that it is looked up together "
    "with.",
)
def _unflagged_may_keep(at: Interpretation) -> Statement:
    use_eagle, flagged = _use_eagle(at), at.block_set("flagged")
    return Statement(
        (
            *_some_group(at),
            ("none of those looked up together is flagged", not_(_somebody_alike(at, flagged))),
            ("some other group is flagged", not_(_nobody(at, flagged))),
        ),
        not_(_drops(at, use_eagle, flagged)),
    )


@obligation(
    "sharing_twice_is_sharing_once",
    "The groups that drop a block stay the same when exactly these are flagged.",
)
def _twice_is_once(at: Interpretation) -> Statement:
    hypotheses = _some_group(at)
    use_eagle, groups = _use_eagle(at), at.integer("groups")
    flagged, alike, dropping = (at.block_set(n) for n in ("flagged", "alike", "dropping"))
    once = _drops(at, use_eagle, flagged)
    none_flagged = _nobody(at, flagged)

    def same(group: Term) -> Formula:
        return implies(alike(group), dropping(group) == once)

    def stays(group: Term) -> Formula:
        flag_is_kept = drops_block(use_eagle, flagged(group), none_flagged)
        return implies(flagged(group), dropping(group) == flag_is_kept)

    return Statement(
        (
            *hypotheses,
            ("groups that are looked up together drop alike", for_all(0, groups, same)),
            ("a flagged group drops if any of those like it does", for_all(0, groups, stays)),
        ),
        _drops(at, use_eagle, dropping) == once,
    )


OBLIGATIONS = (
    *_off_drops_nobody,
    *_nobody_flagged_is_everybody,
    *_flag_is_shared,
    *_unflagged_may_keep,
    *_twice_is_once,
)
"""The flags decide which groups drop a block, and sharing them twice changes nothing."""
