"""Runs the theorems and reports the result of each obligation.

An obligation is *proved* when Z3 finds its premises and the negated conclusion contradictory,
when a small model shows that the premises can hold, and when each of its mutants, or one of its
slips if it has none, is refuted by a small model. It is *refuted* when a model violates it.
Everything else, including unknown and an exhausted resource limit, is *inconclusive*. Every model
is replayed on ints.

If cvc5 is installed, proved obligations are also checked by it, in the same process, which is
killed when it takes too long.

Limits are resource counts of the solvers, the same on every machine.

A clause that only takes or gives Python values, a whole configuration say, leaves nothing in the
formulas that a solver is asked about, whatever a theorem does with it: `watched` notes the others.
What is watched is watched while proving: the module has more than 400 lines.
"""

import multiprocessing
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields, is_dataclass, replace
from inspect import unwrap
from multiprocessing.connection import Connection
from types import CodeType, FrameType, FunctionType
from typing import Any

import z3

from hitproof.proofs.errors import ReplayError
from hitproof.proofs.interpretation import Bounded, Model, Replay, Z3Interpretation, bare
from hitproof.proofs.lemmas import LEMMAS
from hitproof.proofs.obligation import Mutant, Obligation, State, Theorem, refutation, slips
from hitproof.proofs.second_solver import Opinion, available, obligation_query, opinion
from hitproof.proofs.theorems import THEOREMS
from hitproof.spec.claims import CLAIMS, Clause, Status
from hitproof.spec.groups import ConfigurationError
from hitproof.spec.terms import Symbol, Term


def _clauses() -> dict[CodeType, Clause]:
    cited = {clause for claim in CLAIMS.values() for clause in claim.clauses}
    stated = {unwrap(clause): clause for clause in cited}
    return {own.__code__: clause for own, clause in stated.items() if isinstance(own, FunctionType)}


@contextmanager
def watched() -> Iterator[set[Clause]]:
    """The clauses that return a term of a solver meanwhile; the set grows as they do."""
    seen: set[Clause] = set()
    clauses = _clauses()

    def note(frame: FrameType, event: str, returned: Any) -> None:
        if event == "return" and frame.f_code in clauses and _has_term(returned):
            seen.add(clauses[frame.f_code])

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield seen
    finally:
        sys.setprofile(before)


def seen_in(theorem: Theorem) -> set[Clause]:
    """The clauses that a solver sees when the theorem is put to it."""
    with watched() as seen:
        for obligation in theorem.obligations:
            refutation(obligation.state, obligation.interpretation())
    return seen


def _has_term(value: Any) -> bool:
    if is_dataclass(value) and not isinstance(value, type):
        return any(_has_term(getattr(value, field.name)) for field in fields(value))
    return isinstance(value, Symbol)


@dataclass(frozen=True)
class Settings:
    """How Z3 runs.

    Attributes:
        seed: of its random choices.
        resource_limit: for one query, in Z3's resource counts.
        bound: of the integers and blocks that a search for models looks at.
        second_resource_limit: for one query, in cvc5's resource counts.
    """

    seed: int = 0
    resource_limit: int = 10_000_000
    bound: int = 6
    second_resource_limit: int = 1_000_000


DEFAULTS = Settings()
"""The default settings of Z3."""


@dataclass(frozen=True)
class ProofResult:
    """The result of one obligation.

    Attributes:
        claim: the theorem's name; that of `proofs.lemmas.LEMMAS` for a lemma.
        obligation: its name within the theorem.
        status: proved, refuted or inconclusive.
        detail: the reason, when not proved.
        resource_count: what Z3 spent on it, mutants included, in its resource counts.
        seconds: wall clock, mutants and second opinion included.
        premises: a model in which the premises hold.
        counterexample: a minimal model that breaks the obligation, when refuted.
        mutants: a minimal model that breaks each mutant, by the mutant's name.
        second_opinion: cvc5's, on what is proved; None when it was not asked.
        clauses: the names of the spec's clauses that are part of what the solvers were asked.
    """

    claim: str
    obligation: str
    status: Status
    detail: str = ""
    resource_count: int = 0
    seconds: float = 0.0
    premises: Model | None = None
    counterexample: Model | None = None
    mutants: dict[str, Model] = field(default_factory=dict)
    second_opinion: Opinion | None = None
    clauses: tuple[str, ...] = ()


class Solver:
    """Z3 under `Settings`, with a running count of what it spent."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.resource_limit = settings.resource_limit
        self.resource_count = 0
        self._counted: tuple[z3.Context | None, int] = None, 0

    def proves(
        self, state: State, interpretation: Callable[[], Z3Interpretation]
    ) -> tuple[bool, str]:
        """Whether the statement is proved, and Z3's reason if not."""
        at = interpretation()
        core, reason = self.contradict(refutation(state, at), at)
        return bool(core), reason

    def contradict(self, formulas: list[Term], at: Z3Interpretation) -> tuple[list[Term], str]:
        """The formulas that contradict each other; none, with the reason, if none do."""
        solver = self._solver(at)
        # Counterexamples come from `small_model`; without them a false statement ends soon.
        solver.set("mbqi", False)
        solver.set("unsat_core", True)
        for number, formula in enumerate(formulas):
            solver.assert_and_track(formula, f"formula!{number}")
        answer, reason = self._check(solver)
        if answer == z3.unsat:
            core = {str(name) for name in solver.unsat_core()}
            return [f for number, f in enumerate(formulas) if f"formula!{number}" in core], ""
        return [], reason or "Z3 finds a model that need not be one of real products"

    def small_model(self, state: State, broken: bool) -> tuple[Model | None, str]:
        """A model of the hypotheses, or the minimal one of all but the conclusion.

        A reason if there is none. What has a model within half the bound is not looked for beyond
        it: nearly everything has, and it takes half the time.
        """
        bound = self._settings.bound
        for upper in (bound // 2, bound):
            model, reason = self._model_up_to(upper, state, broken)
            if model is not None or reason:
                return model, reason
        return None, f"no model has all sizes and blocks up to {bound}"

    def _model_up_to(self, bound: int, state: State, broken: bool) -> tuple[Model | None, str]:
        """The same within the bound, without a reason if there is none in it.

        Each size is made as small as it can be by bisection, the most important first.
        """
        at = Bounded(bound)
        statement = state(at)
        solver = self._solver(at)
        solver.add([bare(premise) for _, premise in statement.premises()])
        solver.add(at.assumptions())
        if broken:
            solver.add(bare(at.not_(statement.conclusion)))
        solution, reason = self._solution(solver)
        for size in at.sizes() if broken else []:
            low = 0
            while solution is not None and low < (high := _value(solution, size)):
                middle = (low + high) // 2
                solver.push()
                solver.add(size <= middle)
                smaller, reason = self._solution(solver)
                solver.pop()
                if smaller is not None:
                    solution = smaller
                elif reason:
                    return None, reason
                else:
                    low = middle + 1
            solver.add(size <= low)
        return (None if solution is None else at.read(solution)), reason

    def _solver(self, at: Z3Interpretation) -> z3.Solver:
        solver = z3.SimpleSolver(ctx=at.context)
        solver.set("random_seed", self._settings.seed)
        solver.set("rlimit", self.resource_limit)
        return solver

    def _solution(self, solver: z3.Solver) -> tuple[z3.ModelRef | None, str]:
        """A model; none, with Z3's reason unless there is none."""
        answer, reason = self._check(solver)
        return solver.model() if answer == z3.sat else None, reason

    def _check(self, solver: z3.Solver) -> tuple[z3.CheckSatResult, str]:
        try:
            answer = solver.check()
        except z3.Z3Exception as error:
            return z3.unknown, f"Z3 fails: {error}"
        # Z3 counts on from one check to the next in the same context.
        count = solver.statistics().get_key_value("rlimit count")
        context, counted = self._counted
        self.resource_count += count - (counted if context is solver.ctx else 0)
        self._counted = solver.ctx, count
        return answer, f"Z3 gives up: {solver.reason_unknown()}" if answer == z3.unknown else ""


def _value(solution: z3.ModelRef, size: z3.ArithRef) -> int:
    return int(solution.eval(size, model_completion=True).as_long())


def replay(state: State, model: Model, broken: bool) -> None:
    """Evaluate the statement on the ints of the model.

    Raises `ReplayError` unless all hypotheses hold, and the conclusion fails if and only if the
    model is said to break it.
    """
    statement = state(Replay(model))
    for why, holds in statement.premises():
        if holds is not True:
            raise ReplayError(f"on ints it does not hold that {why}, with {model}")
    if statement.conclusion is not (not broken):
        raise ReplayError(
            f"on ints the conclusion {'holds' if broken else 'fails'}, against the proof, "
            f"with {model}"
        )


def prove_obligation(
    claim: str, obligation: Obligation, settings: Settings, *, twice: bool = True
) -> ProofResult:
    """Prove one obligation, show that its premises can hold, and refute its mutants.

    ``twice`` asks the second solver, too, if there is one.

    Raises `ReplayError` when a model does not hold on ints, or when the same proof would also
    prove a refuted mutant.
    """
    start = time.perf_counter()
    solver = Solver(settings)
    at = obligation.interpretation()
    with watched() as seen:
        formulas = refutation(obligation.state, at)
    core, reason = solver.contradict(formulas, at)
    result = ProofResult(claim, obligation.name, Status.INCONCLUSIVE)
    result = _judge(result, obligation, solver, None if core else reason)
    if twice and result.status is Status.PROVED and available():
        # The core takes cvc5 a hundredth of the time, but it may lack what cvc5 needs for it.
        for part in (core, formulas):
            query = obligation_query(claim, obligation, (at, part))
            result = replace(result, second_opinion=opinion(query, settings.second_resource_limit))
            if result.second_opinion is not Opinion.UNKNOWN:
                break
    return replace(
        result,
        resource_count=solver.resource_count,
        seconds=time.perf_counter() - start,
        clauses=tuple(sorted(clause.__name__ for clause in seen)),
    )


def _judge(
    result: ProofResult, obligation: Obligation, solver: Solver, not_proved: str | None
) -> ProofResult:
    if not_proved is not None:
        counterexample, no_model = solver.small_model(obligation.state, broken=True)
        if counterexample is None:
            return replace(result, detail=f"not proved ({not_proved}), not refuted ({no_model})")
        replay(obligation.state, counterexample, broken=True)
        return replace(
            result,
            status=Status.REFUTED,
            detail=f"fails with {counterexample}",
            counterexample=counterexample,
        )
    premises, reason = solver.small_model(obligation.state, broken=False)
    if premises is None:
        return replace(result, detail=f"its premises are not known to be possible: {reason}")
    replay(obligation.state, premises, broken=False)
    refuted: dict[str, Model] = {}
    result = replace(result, premises=premises, mutants=refuted)
    for mutant in obligation.mutants:
        try:
            model, reason = _refutes(mutant, obligation, solver)
        except IndexError as error:
            raise ReplayError(f"{mutant.name} is about a group that is none") from error
        if model is None:
            return replace(result, detail=f"its mutant {mutant.name} is not refuted: {reason}")
        refuted[mutant.name] = model
    if not obligation.mutants:
        refuted.update(_refuted_slip(obligation, solver))
    if not refuted:
        return replace(result, detail="none of its slips is refuted, so it may be unable to fail")
    return replace(result, status=Status.PROVED)


def _refutes(mutant: Mutant, obligation: Obligation, solver: Solver) -> tuple[Model | None, str]:
    """A small model that refutes a mutant, or the reason why there is none.

    Raises IndexError where it is about a group that there is not.
    """
    model, reason = solver.small_model(mutant.state, broken=True)
    if model is not None:
        replay(mutant.state, model, broken=True)
        if solver.proves(mutant.state, obligation.interpretation)[0]:
            raise ReplayError(f"{obligation.name} proves its mutant {mutant.name} too")
    return model, reason


def _refuted_slip(obligation: Obligation, solver: Solver) -> dict[str, Model]:
    """The first of an obligation's slips that a small model refutes, by its name, if any does."""
    solver.resource_limit //= 10  # one slip is enough, so none is waited for
    for slip in slips(obligation.state):
        with suppress(IndexError, ConfigurationError):
            model, _ = _refutes(slip, obligation, solver)
            if model is not None:
                return {slip.name: model}
    return {}


def prove(
    names: Iterable[str] | None = None, *, settings: Settings = DEFAULTS
) -> list[ProofResult]:
    """Prove the theorems of these claims, of all by default, and the lemmas they rest on.

    Raises `ValueError` on a claim without theorem, `ReplayError` as `prove_obligation` does.
    """
    return list(_results(chosen(names), settings))


def prove_in_subprocess(
    names: Iterable[str] | None = None,
    *,
    timeout_seconds: float = 120.0,
    settings: Settings = DEFAULTS,
) -> list[ProofResult]:
    """`prove` in a process of its own, which is killed when the time is up.

    The time is a backstop for a Z3 that ignores its resource limit. What was not finished is
    inconclusive.
    """
    theorems = chosen(names)
    planned = [(theorem.name, part.name) for theorem in theorems for part in theorem.obligations]
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    claims = [theorem.name for theorem in theorems if theorem is not LEMMAS]
    process = context.Process(target=_work, args=(sender, claims, settings), daemon=True)
    deadline = time.monotonic() + timeout_seconds
    process.start()
    sender.close()
    results: list[ProofResult] = []
    try:
        detail = _receive(receiver, results, len(planned), deadline)
    finally:
        process.kill()
        process.join()
        receiver.close()
    return results + [
        ProofResult(claim, name, Status.INCONCLUSIVE, detail)
        for claim, name in planned[len(results) :]
    ]


def _receive(
    receiver: Connection, results: list[ProofResult], expected: int, deadline: float
) -> str:
    """Append what the child sends, until all is there; else say why not."""
    while len(results) < expected:
        if not receiver.poll(max(0.0, deadline - time.monotonic())):
            return "not finished in time"
        try:
            message = receiver.recv()
        except EOFError:
            return "the process of the prover died"
        if isinstance(message, Exception):
            raise message
        results.append(message)
    return ""


def _work(sender: Connection, names: list[str], settings: Settings) -> None:
    try:
        for result in _results(chosen(names), settings):
            sender.send(result)
    except Exception as error:
        sender.send(error)


def chosen(names: Iterable[str] | None) -> list[Theorem]:
    """The theorems of these claims, of all by default, after the lemmas.

    Raises `ValueError` on a claim without theorem.
    """
    claims = list(THEOREMS) if names is None else list(dict.fromkeys(names))
    unknown = [name for name in claims if name not in THEOREMS]
    if unknown:
        raise ValueError(f"no theorem for {', '.join(unknown)}; there is {', '.join(THEOREMS)}")
    return [LEMMAS, *(THEOREMS[name] for name in claims)]


def _results(theorems: list[Theorem], settings: Settings) -> Iterator[ProofResult]:
    lemmas: list[str] = []
    known: dict[Obligation, ProofResult] = {}
    for theorem in theorems:
        proved: set[str] = set()
        for obligation in theorem.obligations:
            if obligation not in known:
                known[obligation] = prove_obligation(theorem.name, obligation, settings)
            result = replace(known[obligation], claim=theorem.name)
            missing = [each.name for each in obligation.rests_on if each.name not in proved]
            if theorem is LEMMAS and result.status is not Status.PROVED:
                lemmas.append(result.obligation)
            elif (lemmas or missing) and result.status is Status.PROVED:
                what = "lemmas" if lemmas else "obligations"
                detail = f"rests on {what} that are not proved: {', '.join(lemmas or missing)}"
                result = replace(result, status=Status.INCONCLUSIVE, detail=detail)
            if result.status is Status.PROVED:
                proved.add(obligation.name)
            yield result
