"""Single-point mutants of the spec, and which of them the theorems notice.

A clause is proved only if no change of it that means something else leaves every theorem proved.
``python -m hitproof.conformance.spec_mutants [CLAUSE...]`` prints what notices each mutant, and for
each clause how many are generated and how many a theorem notices. It takes minutes for all.
"""

import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from functools import cache, partial
from time import process_time
from types import FrameType
from typing import Any, TypeAlias

from hitproof.conformance.mutation import Mutant, mutants
from hitproof.proofs.lemmas import LEMMAS
from hitproof.proofs.obligation import Obligation, refutation
from hitproof.proofs.prover import DEFAULTS, Solver, prove_obligation
from hitproof.proofs.theorems import THEOREMS
from hitproof.spec import (
    admission,
    attention,
    connector,
    eviction,
    groups,
    hits,
    mask,
    pool,
    retention,
    sharing,
    terms,
    tiers,
)
from hitproof.spec.claims import Status
from hitproof.spec.releases import fine, horizons, sequential

MUTATED = (
    terms,
    attention,
    groups,
    hits,
    mask,
    retention,
    sharing,
    pool,
    eviction,
    admission,
    horizons,
    sequential,
    fine,
    connector,
    tiers,
)
"""All of the spec but the registry, which states no predicate."""

_ORDER = (
    "the greater, the lesser, the sum, the product and either of two do not depend on their order"
)
_NOT_LOOKED_AT = "no clause reads the tail or the chunk of a kind that has none"
_ZERO_IS_VALID = "length 0 is valid, whatever else holds"
_SAME = "the two are the same"
_EQUAL = "of two equals either is the greater, and the lesser"
_ONE_LOGIC = "all symbols of a formula have the same logic"

EQUIVALENT: dict[str, str] = {
    "spec.terms.max: left > right -> left >= right": _EQUAL,
    "spec.terms.min: left < right -> left <= right": _EQUAL,
    "spec.terms.ceil_div: _logic(dividend, divisor) -> _logic(divisor, dividend)": _ONE_LOGIC,
    "spec.terms.max: _logic(left, right) -> _logic(right, left)": _ONE_LOGIC,
    "spec.terms.min: _logic(left, right) -> _logic(right, left)": _ONE_LOGIC,
    "spec.terms.for_all: _logic(start, end) -> _logic(end, start)": _ONE_LOGIC,
    "spec.terms.greatest: _logic(step, limit) -> _logic(limit, step)": _ONE_LOGIC,
    "spec.terms.greatest: 0 -> -1": "it is 0 whether nothing else holds or that does",
    "spec.terms.span: cast(range, of_symbols) -> of_symbols": "a cast gives what it is given",
    "spec.terms.implies: _logic(premise, conclusion) -> _logic(conclusion, premise)": _ONE_LOGIC,
    "spec.tiers.longest_tier_hit: partial(is_available, stored, local) -> "
    "partial(is_available, local, stored)": _ORDER,
    "spec.admission.first_token_read: max(0, query - window + 1) -> "
    "max(query - window + 1, 0)": _ORDER,
    "spec.admission.blocks_at_once: states_at_once(drafts, exports) -> "
    "states_at_once(exports, drafts)": _ORDER,
    "spec.admission.blocks_at_once: "
    "min(tokens_at_once(step + again, group.window, group.chunk), num_tokens) -> "
    "min(num_tokens, tokens_at_once(step + again, group.window, group.chunk))": _ORDER,
    "spec.retention.resend_cap: max(1, hash_lookahead_tokens) -> "
    "max(hash_lookahead_tokens, 1)": _ORDER,
    "spec.attention.replay_start: max(hit - window + 1, 0) -> max(0, hit - window + 1)": _ORDER,
    "spec.retention.serves_follow_ups: max(run_start(group, boundary), 0) -> "
    "max(0, run_start(group, boundary))": _ORDER,
    "spec.retention.serves_follow_ups: min(run_end(group, boundary), computed) -> "
    "min(computed, run_end(group, boundary))": _ORDER,
    "spec.releases.fine.witness_entries: min(end, horizon // hash_block_size) -> "
    "min(horizon // hash_block_size, end)": _ORDER,
    "spec.releases.fine.is_held: min(witness_end(kind, unit, units), horizon_units) -> "
    "min(horizon_units, witness_end(kind, unit, units))": _ORDER,
    "spec.releases.sequential.valid_without_margin: "
    "valid_boundary(group, boundary, candidate, candidate, cached) -> "
    "valid_boundary(group, boundary, candidate, candidate, cached)": _SAME,
    "spec.releases.sequential.longest_joint_hit: horizon(policy, num_tokens, candidate) -> "
    "horizon(num_tokens, policy, candidate)": "only one policy gets there, and its horizon is the "
    "candidate, whatever the request",
    "spec.releases.sequential.longest_joint_hit: "
    "policy is not LookaheadHorizon.CANDIDATE or not one_pass_suffices(groups) -> "
    "not one_pass_suffices(groups)": "with a fixed horizon, one pass leaves the longest valid hit, "
    "too",
    "spec.releases.sequential.longest_joint_hit: "
    "longest_valid_hit(asked, alignment_tokens, candidate, peek, cached) -> "
    "longest_valid_hit(asked, alignment_tokens, peek, candidate, cached)": _SAME,
    "spec.retention.junction_boundary: "
    "replay_boundary(shared, shared, lookahead_tokens, alignment_tokens) -> "
    "replay_boundary(shared, shared, lookahead_tokens, alignment_tokens)": _SAME,
    "spec.hits.required_run: max(run_start(group, boundary), 0) -> "
    "max(0, run_start(group, boundary))": _ORDER,
    "spec.retention.replay_boundary: min(cap, horizon_tokens - lookahead_tokens) -> "
    "min(horizon_tokens - lookahead_tokens, cap)": _ORDER,
    "spec.retention.replay_boundary: "
    "max(limit // alignment_tokens * alignment_tokens, 0) -> "
    "max(0, limit // alignment_tokens * alignment_tokens)": _ORDER,
    "spec.pool.vacancy: max(1 - block.ref_count, 0) -> max(0, 1 - block.ref_count)": _ORDER,
    "spec.mask.next_boundary: max(passed + group.segment, group.segment) -> "
    "max(group.segment, passed + group.segment)": _ORDER,
    "spec.groups.share_eagle: drops_block(use_eagle, flagged_alike(group), none_flagged) -> "
    "drops_block(use_eagle, none_flagged, flagged_alike(group))": _ORDER,
    "spec.groups.share_eagle: is_looked_up_with(group, other) -> "
    "is_looked_up_with(other, group)": _ORDER,
    "spec.hits.valid_hit: 0 <= length -> 0 < length": _ZERO_IS_VALID,
    "spec.hits.valid_hit: 0 -> 1": _ZERO_IS_VALID,
    "spec.groups.geometry: 0 -> 1": _NOT_LOOKED_AT,
    "spec.groups.geometry: 0 -> -1": _NOT_LOOKED_AT,
    "spec.groups.geometry: "
    "1 if group.chunk is None else group.chunk -> group.chunk": _NOT_LOOKED_AT,
    "spec.groups.geometry: 1 -> 2 #2": _NOT_LOOKED_AT,
    "spec.groups.geometry: 1 -> 0 #2": _NOT_LOOKED_AT,
    "spec.hits.run_start: 0 -> -1": "a start below 0 means from block 0",
}
"""Mutants that mean the same as the spec, and why."""

_ONLY_UNUSED = "only blocks with a reference count of 0 are taken"
_REFUSED = "it decides only which configurations are refused, and no engine has those"
_ONLY_KEYLESS = "only blocks without a key are registered, and no key finds these"

SAME_WHERE_ASKED: dict[str, str] = {
    "spec.groups.alignment: for_each(groups, lambda _, group: not_(group.prefix_cacheable)) -> "
    "groups": _REFUSED,
    "spec.groups.alignment: for_each(groups, lambda _, group: not_(group.prefix_cacheable)) -> "
    "lambda _, group: not_(group.prefix_cacheable)": _REFUSED,
    "spec.groups.geometry: (1 <= alignment_tokens) & is_multiple(alignment_tokens, "
    "group.block_size) -> (1 <= alignment_tokens) | is_multiple(alignment_tokens, "
    "group.block_size)": _REFUSED,
    "spec.groups.geometry: (1 <= alignment_tokens) & is_multiple(alignment_tokens, "
    "group.block_size) -> 1 <= alignment_tokens": _REFUSED,
    "spec.groups.geometry: 1 -> 0": _REFUSED,
    "spec.groups.geometry: (1 <= alignment_tokens) & is_multiple(alignment_tokens, "
    "group.block_size) -> is_multiple(alignment_tokens, group.block_size)": _REFUSED,
    "spec.pool.taken: block.ref_count + 1 -> 1": _ONLY_UNUSED,
    "spec.pool.taken: block.holders + 1 -> 1": _ONLY_UNUSED,
    "spec.pool.invalidated: replace(block, keys=0, named=0, stale=0) -> "
    "replace(block, keys=0, named=0)": "no entry of a sound block is stale",
    "spec.pool.freed: block.queued + vacancy(left) -> vacancy(left)": (
        "a block that a table holds is not in the queue"
    ),
    "spec.pool.registered: block.keys + 1 -> 1": _ONLY_KEYLESS,
    "spec.pool.registered: block.named + 1 -> 1": _ONLY_KEYLESS,
    "spec.connector.may_diverge: has(GroupKind.FULL_ATTENTION) & has(GroupKind.MAMBA) -> "
    "has(GroupKind.FULL_ATTENTION)": "without Mamba no group is fully loaded",
    "spec.connector.valid_local_boundary: "
    "within_reach(group, boundary, cap_blocks, horizon_blocks) -> "
    "within_reach(group, boundary, horizon_blocks, cap_blocks)": (
        "it is asked so of Mamba groups, which never look ahead: the hit ends where its run does"
    ),
}
"""Mutants that mean the same wherever the clause is asked, though not elsewhere, and why."""

Line: TypeAlias = tuple[str, int]


def lines_run(run: Callable[[], object]) -> set[Line]:
    """The lines of the spec that are run, with their files."""
    files, lines = {module.__file__ for module in MUTATED}, set[Line]()

    def in_spec(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            lines.add((frame.f_code.co_filename, frame.f_lineno))
        return in_spec

    def in_any(frame: FrameType, _: str, __: Any) -> Any:
        return in_spec if frame.f_code.co_filename in files else None

    before = sys.gettrace()
    sys.settrace(in_any)
    try:
        run()
    finally:
        sys.settrace(before)
    return lines


def lines_changed(mutant: Mutant) -> set[Line]:
    """The lines of the statement that the mutant changes."""
    first, last = mutant.lines
    return {(mutant.function.__code__.co_filename, line) for line in range(first, last + 1)}


@cache
def _lines_stated() -> list[tuple[str, Obligation, set[Line]]]:
    """Each obligation with the lines of the spec that state it, the quickest to state first."""
    stated: list[tuple[float, str, Obligation, set[Line]]] = []
    for theorem in (LEMMAS, *THEOREMS.values()):
        for each in theorem.obligations:
            start = process_time()
            lines = lines_run(partial(refutation, each.state, each.interpretation()))
            name = f"{theorem.name}: {each.name}"
            stated.append((process_time() - start, name, each, lines))
    return [(name, each, lines) for _, name, each, lines in sorted(stated, key=lambda s: s[0])]


def noticed_by(mutant: Mutant) -> str | None:
    """The first obligation that is not proved of the mutant, with its claim; None if all are.

    First it is looked for one that does not hold of the mutant; then for one whose premises cannot
    hold any more, or one of whose own mutants is not refuted.
    """
    changed = lines_changed(mutant)
    asked = [(name, each) for name, each, lines in _lines_stated() if changed & lines]
    with mutant.applied():
        for proves in (_holds, _is_proved):
            for name, obligation in asked:
                try:
                    proved = proves(obligation)
                except Exception:  # the mutant makes no sense of some terms, or of ints
                    proved = False
                if not proved:
                    return name
    return None


def _holds(obligation: Obligation) -> bool:
    return Solver(DEFAULTS).proves(obligation.state, obligation.interpretation)[0]


def _is_proved(obligation: Obligation) -> bool:
    return prove_obligation("", obligation, DEFAULTS, twice=False).status is Status.PROVED


def all_mutants(clauses: Collection[str] | None = None) -> Iterator[Mutant]:
    """All of the spec, or of the functions of these names."""
    for module in MUTATED:
        yield from mutants(module, clauses)


def _main(clauses: list[str]) -> None:
    generated: Counter[str] = Counter()
    noticed: Counter[str] = Counter()
    same: Counter[str] = Counter()
    for mutant in all_mutants(clauses or None):
        if mutant.function.__module__ == terms.__name__:
            continue  # no clauses: tests notice what is wrong with what stands for operators
        clause = mutant.function.__qualname__
        generated[clause] += 1
        by = noticed_by(mutant)
        noticed[clause] += by is not None
        reason = (EQUIVALENT | SAME_WHERE_ASKED).get(mutant.name, "")
        same[clause] += by is None and bool(reason)
        print(f"{mutant.name}: {by or reason or 'NOT NOTICED'}", flush=True)
    for clause, count in sorted(generated.items()):
        means_more = count - same[clause]
        print(f"{clause}: {noticed[clause]} of {means_more} mutants are noticed by a theorem")


if __name__ == "__main__":
    _main(sys.argv[1:])
