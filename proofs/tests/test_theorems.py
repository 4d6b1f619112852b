"""The theorems are proved, with any seed, and fall when the spec is broken."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain, combinations, product
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hitproof.proofs.cases import CASES, KINDS
from hitproof.proofs.interpretation import Abstract, Interpretation, Model, Replay
from hitproof.proofs.lemmas import LEMMAS
from hitproof.proofs.lookup import _two_hits
from hitproof.proofs.obligation import Obligation, State, Statement, Taken, Theorem, slips
from hitproof.proofs.prover import (
    DEFAULTS,
    Settings,
    Solver,
    prove,
    prove_obligation,
    seen_in,
    watched,
)
from hitproof.proofs.scans import _setting
from hitproof.proofs.theorems import COVERS, THEOREMS
from hitproof.spec import attention, groups, hits, mask, retention, sharing
from hitproof.spec.claims import CLAIMS, Basis, Clause, Status, basis
from hitproof.spec.groups import BlockGeometry, ConfigurationError, Group, GroupKind
from hitproof.spec.terms import max

pytestmark = pytest.mark.slow

KEEPS = "mask_keeps_every_reachable_block"
EVERY = (LEMMAS, *THEOREMS.values())
ALL = [
    pytest.param(obligation, id=f"{theorem.name}-{obligation.name}")
    for theorem in EVERY
    for obligation in theorem.obligations
]


def test_each_claim_has_its_theorem() -> None:
    assert set(THEOREMS) == set(CLAIMS)
    for name, theorem in THEOREMS.items():
        assert theorem.name == name
        assert theorem.obligations


def unseen_clauses(seen: dict[str, set[Clause]]) -> list[str]:
    """The clauses that no solver sees, with their claims."""
    return [
        f"{claim.name}: {clause.__name__} is not seen"
        for claim in CLAIMS.values()
        for clause in claim.clauses
        if clause not in seen[claim.name]
    ]


@pytest.mark.long
def test_solvers_see_each_clause() -> None:
    seen = {name: seen_in(theorem) for name, theorem in THEOREMS.items()}
    assert unseen_clauses(seen) == []
    unseen = seen | {"fine_grained_hit_is_vouched_for": seen["retention_keeps_junctions"]}
    assert "fine_grained_hit_is_vouched_for: is_held is not seen" in unseen_clauses(unseen)


def test_a_clause_that_gives_a_python_value_is_not_seen() -> None:
    block = Abstract().integer("block")
    group = BlockGeometry(GroupKind.SLIDING_WINDOW, 1, 1, 0)
    with watched() as seen:
        hits.required_run(group, 3)
        hits.in_required_run(group, 2, 3)
    assert seen == set()
    with watched() as seen:
        hits.in_required_run(group, block, 3)
    assert hits.in_required_run in seen


@pytest.mark.parametrize("module", [attention, groups, hits, mask, retention])
def test_all_clauses_of_the_core_are_proved(module: ModuleType) -> None:
    cited = {clause for claim in CLAIMS.values() for clause in claim.clauses}
    own = [clause for clause in cited if clause.__module__ == module.__name__]
    assert own
    assert {basis(clause) for clause in own} == {Basis.PROVED}


def test_each_theorem_says_what_it_covers() -> None:
    assert set(COVERS) == set(CLAIMS)
    assert all(theorem.covers.endswith(".") for theorem in THEOREMS.values())


def test_each_kind_of_group_is_covered() -> None:
    assert set(KINDS) == set(GroupKind)


def test_names_are_unique() -> None:
    for theorem in EVERY:
        names = [obligation.name for obligation in theorem.obligations]
        assert len(names) == len(set(names))
        for obligation in theorem.obligations:
            mutants = [mutant.name for mutant in obligation.mutants]
            assert len(mutants) == len(set(mutants))


def test_obligations_rest_on_earlier_ones_of_their_theorem() -> None:
    for theorem in EVERY:
        before: set[Obligation] = set()
        for obligation in theorem.obligations:
            assert set(obligation.rests_on) <= before, obligation.name
            before.add(obligation)


def without(state: State, taken: Obligation) -> State:
    """The same statement, of which one premise is missing that another obligation proves."""

    def broken(at: Interpretation) -> Statement:
        statement = state(at)
        kept = (
            tuple(p for p in premises if not (isinstance(p[0], Taken) and p[0].obligation is taken))
            for premises in (statement.hypotheses, statement.given())
        )
        hypotheses, given = kept
        return replace(statement, hypotheses=hypotheses, given=lambda: given)

    return broken


LINKS = [
    pytest.param(obligation, taken, id=f"{theorem.name}-{obligation.name}-{taken.name}")
    for theorem in THEOREMS.values()
    for obligation in theorem.obligations
    for taken in obligation.rests_on
]


@pytest.mark.long(keep=4)
@pytest.mark.parametrize(("obligation", "taken"), LINKS)
def test_nothing_is_proved_without_what_it_rests_on(
    obligation: Obligation, taken: Obligation
) -> None:
    solver = Solver(Settings())
    assert not solver.proves(without(obligation.state, taken), obligation.interpretation)[0]


@pytest.mark.parametrize("theorem", EVERY, ids=lambda theorem: theorem.name)
def test_it_is_proved_and_each_mutant_is_refuted(theorem: Theorem) -> None:
    for obligation in theorem.obligations:
        result = prove_obligation(theorem.name, obligation, DEFAULTS)
        assert result.status is Status.PROVED, (obligation.name, result.detail)
        tried = {each.name: each for each in obligation.mutants or slips(obligation.state)}
        found = result.mutants
        assert list(found) == list(tried) if obligation.mutants else len(found) == 1
        for name, model in found.items():
            statement = tried[name].state(Replay(model))
            assert all(holds for _, holds in statement.premises())
            assert not statement.conclusion


def test_mask_without_lookahead_loses_the_lookahead_block() -> None:
    """vLLM 0.22.1: the block just past boundary 1 is needed there, and not registered."""
    claim, name = KEEPS, "reachable_block_is_kept[sliding_window, with lookahead]"
    (obligation,) = (each for each in THEOREMS[claim].obligations if each.name == name)
    result = prove_obligation(claim, obligation, DEFAULTS)
    assert result.mutants["mask_without_lookahead"] == Model(
        {"block": 1, "lookahead": 1, "segment": 1, "tail": 0, "count": 1}
    )


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2, 3, 42, 20_26])
def test_proofs_do_not_hang_on_the_seed(seed: int) -> None:
    solver = Solver(Settings(seed=seed))
    for theorem in EVERY:
        for obligation in theorem.obligations:
            proved, reason = solver.proves(obligation.state, obligation.interpretation)
            assert proved, (theorem.name, obligation.name, reason)


def test_results_do_not_depend_on_what_ran_before() -> None:
    claim = "mask_keeps_only_reachable_blocks"
    alone, after = (
        [replace(each, seconds=0) for each in prove(names) if each.claim == claim]
        for names in ([claim], [KEEPS, claim])
    )
    assert alone == after


def block_sets(bound: int) -> Iterator[tuple[int, ...]]:
    """All of them, in the order in which `Bounded.sizes` prefers them."""
    blocks = range(bound + 1)
    subsets = chain.from_iterable(combinations(blocks, size) for size in range(bound + 2))
    return iter(sorted(subsets, key=lambda s: (len(s), sum(2**block for block in s))))


def first_model(state: State, unknowns: Model, bound: int) -> Model | None:
    """The first of all models within the bound, by trying everything in order."""
    integers = product(range(bound + 1), repeat=len(unknowns.integers))
    for values in integers:
        for members in product(*(list(block_sets(bound)) for _ in unknowns.block_sets)):
            model = Model(
                dict(zip(unknowns.integers, values, strict=True)),
                dict(zip(unknowns.block_sets, members, strict=True)),
            )
            try:
                statement = state(Replay(model))
            except (ZeroDivisionError, ConfigurationError):
                continue  # premises exclude it
            if all(holds for _, holds in statement.premises()) and not statement.conclusion:
                return model
    return None


def _refuted(state: State) -> Model | None:
    return Solver(Settings()).small_model(state, broken=True)[0]


@pytest.mark.long
@pytest.mark.parametrize("obligation", ALL)
def test_models_are_minimal(obligation: Obligation) -> None:
    # Everything is tried in order, which takes long where a statement has many unknowns.
    premises, _ = Solver(Settings()).small_model(obligation.state, broken=False)
    assert premises is not None
    if "num_groups" in premises.integers:
        pytest.skip("there are too many ways in which groups differ")
    few = len(premises.integers) + 2 * len(premises.block_sets) <= 7
    bound = 3 if few else 2
    solver = Solver(Settings(bound=bound))
    slip = (each for each in slips(obligation.state) if _refuted(each.state))
    for mutant in obligation.mutants or [next(slip)]:
        model, _ = solver.small_model(mutant.state, broken=True)
        # The smallest may lie beyond the bound of this test: then there is none within it.
        unknowns = model or _refuted(mutant.state)
        assert unknowns is not None, mutant.name
        first = first_model(mutant.state, unknowns, bound // 2)
        assert (first or first_model(mutant.state, unknowns, bound)) == model


@pytest.mark.parametrize(("kind", "lookahead"), CASES)
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_the_scan_is_about_valid_hits(kind: GroupKind, lookahead: int, data: st.DataObject) -> None:
    """The lookup theorem is about the hits that valid_hit accepts."""
    small = st.integers(1, 5)
    values = {
        name: data.draw(small)
        for name in ("count", "other", "segment", "tail", "block_size", "chunk")
    }
    values |= {name: data.draw(st.integers(0, 20)) for name in ("cap", "horizon")}
    values["lookahead"] = data.draw(st.integers(1, 3)) if lookahead else 0
    missing = data.draw(st.sets(st.integers(0, 20), max_size=3))
    members = tuple(block for block in range(21) if block not in missing)
    model = Model(values, {"cached": members})
    count, valid, *_ = _two_hits(Replay(model), kind, lookahead)
    # The size of a block matters to chunks only; a tail in blocks is one in tokens at size 1.
    chunked, sliding = kind is GroupKind.CHUNKED_LOCAL, kind is GroupKind.SLIDING_WINDOW
    size = values["block_size"] if chunked else 1
    window, chunk = values["tail"] + 1 if sliding else None, values["chunk"] if chunked else None
    ahead = max(values["lookahead"] * size, 1)
    group = Group(kind, size, window, bool(lookahead), chunk, prefill_lookahead=ahead)
    assert valid is hits.valid_hit(
        [group],
        values["segment"] * size,
        count * values["segment"] * size,
        values["cap"] * size,
        values["horizon"] * size,
        lambda _, block: block in members,
    )


def off_by(step: int, original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments: original(*arguments) + step


def unshifted_next_boundary(group: Any, block: Any) -> Any:
    """As vLLM 0.22.1 has it."""
    return NEXT_BOUNDARY(group, block + group.lookahead)


NEXT_BOUNDARY = mask.next_boundary
BROKEN = [
    (mask, "next_boundary", unshifted_next_boundary, "mask_keeps_every_reachable_block"),
    (hits, "run_start", off_by(1, hits.run_start), "hit_has_every_block_attention_reads"),
    (
        sharing,
        "final_tokens",
        lambda n, ahead: n - ahead,
        "reused_content_is_determined_by_the_hit",
    ),
]
"""Every single-point change of a clause is among the mutants of the spec."""


@pytest.mark.parametrize(("module", "clause", "broken", "claim"), BROKEN)
def test_broken_clause_is_refuted(
    monkeypatch: pytest.MonkeyPatch,
    module: ModuleType,
    clause: str,
    broken: Callable[..., Any],
    claim: str,
) -> None:
    monkeypatch.setattr(module, clause, broken)
    refuted = [r for r in prove([claim]) if r.status is Status.REFUTED]
    assert refuted
    assert {r.claim for r in refuted} == {claim}
    assert all(r.counterexample is not None for r in refuted)


@pytest.mark.parametrize("kind", GroupKind)
def test_scans_are_proved_for_any_lookahead_and_two_limits(kind: GroupKind) -> None:
    """The lookahead, the cap and the horizon are unknowns of their own, without bounds."""
    setting, hypotheses = _setting(Abstract(), kind)
    unknowns = {str(setting.cap), str(setting.horizon), str(setting.group.lookahead)}
    assert len(unknowns) == 3
    bounded = [why for why, holds in hypotheses if "lookahead <= 1" in str(holds)]
    assert bounded == []
