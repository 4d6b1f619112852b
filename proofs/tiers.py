"""The theorems on tiers (`spec.tiers`), in the style of `proofs.theorems`.

``start``, ``middle`` and ``end`` are where steps of a request start and end, in blocks.
"""

from collections.abc import Callable
from typing import Any

from hitproof.proofs import several
from hitproof.proofs.cases import CASES, any_group, obligation
from hitproof.proofs.interpretation import Interpretation
from hitproof.proofs.obligation import Obligation, Statement
from hitproof.spec import hits, mask, tiers
from hitproof.spec.groups import BlockGeometry, GroupKind, geometry
from hitproof.spec.terms import Formula, Term, is_multiple, max, not_


@obligation(
    "reachable_block_is_stored",
    "A block in the required run of some boundary is stored by the step that fills it.",
    CASES,
    late=("So it is by one that fills the next.", {"slip": 1}),
)
def _reachable_is_stored(
    at: Interpretation, kind: GroupKind, lookahead: int, slip: int = 0
) -> Statement:
    block, count = at.integer("block"), at.integer("count")
    start, end = at.integer("start"), at.integer("end")
    group, sizes = any_group(at, kind, lookahead)
    boundary = count * group.segment
    return Statement(
        (
            *sizes,
            ("the hit is not empty", 1 <= count),
            ("the block is in its required run", hits.in_required_run(group, block, boundary)),
            ("the step fills the block", (start <= block + slip) & (block + slip < end)),
        ),
        tiers.is_stored(group, block, start, end),
    )


@obligation(
    "steps_store_what_one_step_does",
    "Two steps, of which the second starts where the first ends, store what one step does.",
    gap=("So they do one block apart.", {"slip": 1}),
)
def _steps_add_up(at: Interpretation, slip: int = 0) -> Statement:
    """Whatever the policy promises."""
    block, start = at.integer("block"), at.integer("start")
    middle, end = at.integer("middle"), at.integer("end")
    group, sizes = any_group(at, GroupKind.SLIDING_WINDOW, 1)
    kept = at.block_set("promised")

    def promised(_: BlockGeometry, each: Term) -> Formula:
        return kept(each)

    def stored(first: Term, last: Term) -> Formula:
        return tiers.is_stored(group, block, first, last, promised)

    return Statement(
        (
            *sizes,
            ("the first step ends where the second starts", (start <= middle) & (middle <= end)),
        ),
        (stored(start, middle) | stored(middle + slip, end)) == stored(start, end),
    )


@obligation(
    "run_is_stored_and_asked_for",
    "Of a hit whose run ends within the request, each block is stored by then, and a lookup asks "
    "for it.",
    CASES,
    past_it=("So it is of one that ends later.", {"slip": 1}),
)
def _run_is_asked_for(
    at: Interpretation, kind: GroupKind, lookahead: int, slip: int = 0
) -> Statement:
    block, count, end = at.integer("block"), at.integer("count"), at.integer("end")
    group, sizes = any_group(at, kind, lookahead)
    boundary = count * group.segment
    return Statement(
        (
            *sizes,
            ("the hit is not empty", 1 <= count),
            ("its run ends within the request", hits.run_end(group, boundary) <= end + slip),
            ("the block is in its run", hits.in_required_run(group, block, boundary)),
        ),
        mask.is_due(group, block, end) & tiers.is_stored(group, block, 0, end),
    )


@obligation(
    "stored_block_is_reachable",
    "A block that a step stores is in the required run of some boundary, and is one of those that"
    " the step fills.",
    CASES,
    before=("It is in that of the one before.", {"count_slip": -1}),
    inside=("It is neither the first nor the last.", {"late": 1}),
)
def _stored_is_reachable(
    at: Interpretation, kind: GroupKind, lookahead: int, count_slip: int = 0, late: int = 0
) -> Statement:
    block, start, end = at.integer("block"), at.integer("start"), at.integer("end")
    group, sizes = any_group(at, kind, lookahead)
    # The boundary that shows it: the first whose run ends after the block.
    passed = (block - group.lookahead) // group.segment
    count = max(passed + 1, 1) + count_slip
    return Statement(
        (*sizes, ("the step stores the block", tiers.is_stored(group, block, start, end))),
        (1 <= count)
        & hits.in_required_run(group, block, count * group.segment)
        & (start + late <= block)
        & (block + late < end),
    )


def _tier_hit(at: Interpretation) -> tuple[int, tuple[Any, ...], Any, Any]:
    """The longest hit of a tier, of any number of groups."""
    groups = at.groups()
    alignment, cap, horizon = (at.integer(name) for name in ("alignment", "cap", "horizon"))
    stored, local = at.block_sets("stored"), at.block_sets("local")
    hit = tiers.longest_tier_hit(groups, alignment, cap, horizon, stored, local)
    return hit, (groups, alignment, cap, horizon), stored, local


@obligation(
    "each_group_has_the_run_of_a_tier_hit",
    "Of any number of groups, each that takes part has every block that a hit of the tier "
    "requires stored or local.",
    stored=("It has them stored.", {"local_too": False}),
    opted_out=("So has each that opts out.", {"part": False}),
)
def _run_is_there(at: Interpretation, part: bool = True, local_too: bool = True) -> Statement:
    """Each group has what the hit requires."""
    block = at.integer("block")
    hit, (groups, alignment, *_), stored, local = _tier_hit(at)
    index, exists = several.some_group(at)
    group = groups[index]
    shape = geometry(group, alignment)
    required = hits.in_required_run(shape, block, hit // group.block_size)
    there = stored(index, block)
    return Statement(
        (
            *exists,
            *((("it takes part", group.prefix_cacheable),) if part else ()),
            several.on_edges(at),
            ("the hit is not empty", hit != 0),
            ("it requires the block", required),
        ),
        there | local(index, block) if local_too else there,
    )


@obligation(
    "no_hit_of_stored_and_local_blocks_is_longer",
    "No other hit of any number of groups is longer whose required runs are stored or local.",
    shorter=("Each is shorter.", {"slip": 1}),
)
def _no_hit_is_longer(at: Interpretation, slip: int = 0) -> Statement:
    """No hit whose blocks are stored or local is longer."""
    other = at.compared("other")
    hit, told, stored, local = _tier_hit(at)
    groups, alignment, cap, horizon = told

    def there(index: Term, block: Term) -> Formula:
        return stored(index, block) | local(index, block)

    return Statement(
        (
            several.on_edges(at),
            ("another hit is within the cap", (1 <= other) & (other <= cap)),
            ("it ends on a boundary", is_multiple(other, alignment)),
            ("it is valid", hits.valid_hit(groups, alignment, other, cap, horizon, there)),
        ),
        other + slip <= hit,
    )


def _load(
    at: Interpretation, kind: GroupKind, lookahead: int
) -> tuple[BlockGeometry, Any, Callable[[Term], Formula], Callable[[Term], Formula]]:
    """Any hit of a group, and what of it is local and is loaded."""
    boundary = at.integer("boundary")
    group, sizes = any_group(at, kind, lookahead)
    local = at.block_set("local")

    def loaded(block: Term) -> Formula:
        return tiers.is_loaded(group, block, boundary, local)

    return group, (*sizes, ("the hit is not empty", 1 <= boundary)), local, loaded


@obligation(
    "a_load_completes_what_is_read",
    "After the load of a hit everything is local that the request reads.",
    CASES,
    further=("So is it for a hit a block longer.", {"slip": 1}),
)
def _all_is_there(at: Interpretation, kind: GroupKind, lookahead: int, slip: int = 0) -> Statement:
    """The request has what it reads."""
    boundary = at.integer("boundary")
    _, sizes, local, loaded = _load(at, kind, lookahead)
    resumed, _ = any_group(at, kind, 0)
    return Statement(
        sizes,
        hits.has_required_run(resumed, boundary + slip, lambda each: local(each) | loaded(each)),
    )


@obligation(
    "what_is_loaded_is_stored",
    "Of a hit whose run is stored or local, each block that is loaded is stored.",
    CASES,
    any_hit=("So it is of any hit.", {"valid": False}),
)
def _loaded_is_stored(
    at: Interpretation, kind: GroupKind, lookahead: int, valid: bool = True
) -> Statement:
    """The tier has what is loaded."""
    boundary, block = at.integer("boundary"), at.integer("block")
    group, sizes, local, loaded = _load(at, kind, lookahead)
    stored = at.block_set("stored")
    run = hits.has_required_run(group, boundary, lambda each: stored(each) | local(each))
    return Statement(
        (
            *sizes,
            *((("its run is stored or local", run),) if valid else ()),
            ("the block is loaded", loaded(block)),
        ),
        stored(block),
    )


@obligation(
    "only_what_is_read_is_loaded",
    "No block is loaded that is local, that the hit does not require, or that is past it.",
    CASES,
    the_last=("Nor is its last block.", {"slip": 1}),
)
def _only_read_is_loaded(
    at: Interpretation, kind: GroupKind, lookahead: int, slip: int = 0
) -> Statement:
    """Nothing is loaded that is local or past the hit, or not required."""
    boundary, block = at.integer("boundary"), at.integer("block")
    group, sizes, local, loaded = _load(at, kind, lookahead)
    required = hits.in_required_run(group, block, boundary)
    return Statement(
        (*sizes, ("the block is loaded", loaded(block))),
        required & (block + slip < boundary) & not_(local(block)),
    )


OBLIGATIONS: dict[str, tuple[Obligation, ...]] = {
    "tier_keeps_every_reachable_block": (*_steps_add_up, *_reachable_is_stored, *_run_is_asked_for),
    "tier_keeps_only_reachable_blocks": _stored_is_reachable,
    "tier_hit_is_the_longest": (*_run_is_there, *_no_hit_is_longer),
    "tier_loads_the_served_run": (*_all_is_there, *_loaded_is_stored, *_only_read_is_loaded),
}
"""The obligations of each claim on tiers, by its name."""
