"""How statements about the target's functions end: proved, refuted by values, or inconclusive."""

import ast
import random
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import chain, combinations
from types import FunctionType
from typing import Any, ClassVar

from hitproof.conformance.findings.evidence import LookupEvidence
from hitproof.conformance.subject.failures import InternalError
from hitproof.proofs.unbounded.proving import Proof, Statement, Verdict, prove
from hitproof.proofs.unbounded.source import Unsupported, literals
from hitproof.proofs.unbounded.terms import Arithmetic
from hitproof.proofs.unbounded.values import Record
from hitproof.spec.claims import Status
from hitproof.spec.groups import BlockGeometry, Group, GroupKind
from hitproof.spec.terms import Blocks, Formula, choose, not_
from hitproof.vllm_integration.adapter.inspection import arguments, attribute, spelled
from hitproof.vllm_integration.adapter.subject import VllmSubject

AGREEING = 150
"""On how many values a function runs beside its proof."""

TRIES = 4000
"""On how many values it runs to show what fails."""


@dataclass(frozen=True)
class Departure:
    """A known fault with its exact condition, a formula over sizes and positions in blocks.

    Attributes:
        cause: the title of the fault in ``survey/faults.toml``.
        where: the condition, as a Python expression. Only there something is wrong.
        lookahead: for lookups, after how many cached blocks past its end a hit is served there.
        keeps: for masks, whether blocks are kept there that no hit needs; otherwise needed ones are
            left out.
    """

    cause: str
    where: str
    lookahead: str = ""
    keeps: bool = False

    def at(self, shape: BlockGeometry, **positions: Blocks) -> Formula:
        """Whether something is wrong for a group at these positions."""
        return _valued(self.where, shape, positions)

    def needed(self, shape: BlockGeometry, hit: Blocks) -> Blocks:
        """How many blocks past a hit have to be cached for it to be served."""
        lost, positions = self.at(shape, hit=hit), {"hit": hit}
        needed: Blocks = choose(
            lost, lambda: _valued(self.lookahead, shape, positions), lambda: shape.lookahead
        )
        return needed

    def told(self, name: str) -> str:
        """The condition in words, for a statement of that name."""
        if name.startswith(("coordinator", "serving")):
            return f"a hit is lost only where {self.where} for some group"
        if self.lookahead:
            return f"where {self.where}, a hit is served only if {self.lookahead} blocks follow it"
        return f"a block is {'kept needlessly' if self.keeps else 'missing'} where {self.where}"


def _valued(text: str, shape: BlockGeometry, positions: Mapping[str, Blocks]) -> Any:
    """The value of an expression of ours; ``and`` and ``or`` take formulas."""
    tree = ast.fix_missing_locations(_Operators().visit(ast.parse(text, mode="eval")))
    sizes = {"segment": shape.segment, "tail": shape.tail, "chunk": shape.chunk // shape.block_size}
    return eval(compile(tree, text, "eval"), {}, {**sizes, **positions})


class _Operators(ast.NodeTransformer):
    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        self.generic_visit(node)
        op = ast.BitAnd() if isinstance(node.op, ast.And) else ast.BitOr()
        return reduce(lambda left, right: ast.BinOp(left, op, right), node.values)


_BLOCK_0 = Departure(
    "With EAGLE under dense retention, block 0 is registered though no hit can use it",
    "block == 0 and tail + 1 == segment",
    keeps=True,
)
_NO_HIT = Departure(
    "With EAGLE, sparse retention keeps block 0 for a hit of 0 tokens",
    "block == 0 and boundary == 0",
    keeps=True,
)

MASK_PARAMETERS = {
    "start_block": "start",
    "num_cached_blocks": "start",
    "end_block": "end",
    "num_full_blocks": "end",
    "alignment_tokens": "alignment",
    "kv_cache_spec": "spec",
    "use_eagle": "eagle",
    "retention_interval": "interval",
    "reachable_boundaries": "boundaries",
    "num_prompt_tokens": "num_prompt_tokens",
    "dcp_world_size": "ranks",
}
"""What the parameters of masks are, by their names in any release."""

DEPARTURES: Mapping[str, tuple[Departure, ...]] = {
    "lookup sliding_window eagle": (
        Departure(
            "With EAGLE, boundaries near the start of a request are lost where blocks are smaller "
            "than the alignment",
            "1 < segment and hit < tail",
            lookahead="segment + 1",
        ),
    ),
    "mask sliding_window eagle dense": (
        _BLOCK_0,
        Departure(
            "The mask omits the lookahead block, so EAGLE gets no hit",
            "tail < segment and segment <= block and block % segment == 0",
        ),
    ),
    "mask sliding_window eagle interval": (_BLOCK_0, _NO_HIT),
    "mask sliding_window eagle latest": (_NO_HIT,),
    "mask chunked_local dense": (
        Departure(
            "The last block of each chunk is registered though no hit can use it",
            "(block + 1) % chunk == 0",
            keeps=True,
        ),
    ),
    "mask mamba dense": (
        Departure(
            "Mamba states between boundaries are registered though no hit can use them",
            "(block + 1) % segment != 0",
            keeps=True,
        ),
    ),
}
"""By the statement that they are about. Those of lookups are of the coordinators', too."""


def with_departures(
    known: tuple[Departure, ...],
    shape: BlockGeometry,
    block: Blocks,
    boundary: Blocks,
    due: Formula,
) -> Formula:
    """Whether a mask with known divergences keeps a block."""
    for each in known:
        wrong = each.at(shape, block=block, boundary=boundary)
        due = due | wrong if each.keeps else due & not_(wrong)
    return due


def combinations_of(name: str) -> tuple[tuple[Departure, ...], ...]:
    """Which known divergences to prove a statement outside of, first none, then all of them."""
    known = DEPARTURES.get(name, ())
    sizes = [0, *range(len(known), 0, -1)]
    return tuple(each for size in sizes for each in combinations(known, size))


@dataclass(frozen=True)
class Outcome:
    """What is known of one statement.

    Attributes:
        status: proved for all lengths, refuted by values, or inconclusive.
        detail: what fails, with the values, or why nothing is known.
        outside: known divergences, outside of which it is proved.
        evidence: the counterexample, where it is one of a lookup.
        proof: the proof.
    """

    status: Status
    detail: str = ""
    outside: tuple[Departure, ...] = ()
    evidence: LookupEvidence | None = None
    proof: Proof | None = None


@dataclass(frozen=True)
class Shown:
    """Where the real function, on some values, is not what its statement says.

    ``evidence`` is what a lookup served there.
    """

    detail: str
    evidence: LookupEvidence | None = None

    @classmethod
    def of_lookup(cls, sizes: str, evidence: LookupEvidence | None) -> "Shown":
        """A lookup of groups of these sizes."""
        if evidence is None:
            return cls(f"{sizes}: a hit is served that is known to be lost")
        answer = "raises" if evidence.actual_hit is None else f"hits {evidence.actual_hit} tokens"
        cached = " and ".join(str(sorted(each)) for each in evidence.cached)
        told = f"of {evidence.max_length} tokens, with blocks {cached} cached, {answer}"
        return cls(f"{sizes}: a lookup {told} ({evidence.spec_hit} expected)", evidence)


@dataclass(frozen=True)
class Trial:
    """On which values a function runs.

    Attributes:
        chance: what they are drawn by.
        sizes: those for which a proof failed, which some of the values are to be like.
        known: divergences outside of which the values are to be.
        tries: how many times it runs.
    """

    chance: random.Random
    sizes: Mapping[str, int]
    known: tuple[Departure, ...]
    tries: int


class Settling(ABC):
    """A statement about a function of the target, of any sizes.

    Attributes:
        assumptions: outside of which known divergences it is to be proved, the fewest first.
    """

    assumptions: tuple[tuple[Departure, ...], ...] = ((),)

    @abstractmethod
    def statement(self, here: Arithmetic, known: tuple[Departure, ...]) -> Statement:
        """What holds of the function outside of these divergences."""

    @abstractmethod
    def natively(self, trial: Trial) -> Iterator[Shown]:
        """What is wrong where the real function runs."""

    def settle(self, seconds: float, name: str, proved: set[str]) -> Outcome:
        """Prove it, or prove it except for known divergences, or refute it.

        The known divergences count that agree best with what the function does. ``proved`` has
        digests of what is proved already, and gets more.
        """
        runs = {
            known: list(self.natively(Trial(random.Random(0), {}, known, AGREEING)))
            for known in self.assumptions
        }
        fewest = min(map(len, runs.values()))
        failed: list[tuple[tuple[Departure, ...], Proof]] = []
        for known, wrong in runs.items():
            if len(wrong) > fewest:
                continue
            proof = self._proof(known, seconds, name, proved)
            if proof.verdict is Verdict.INCONCLUSIVE:
                return Outcome(Status.INCONCLUSIVE, proof.detail, proof=proof)
            if proof.verdict is Verdict.PROVED:
                if wrong:
                    raise InternalError(f"proved, but wrong: {wrong[0].detail}")
                return Outcome(Status.PROVED, outside=known, proof=proof)
            failed.append((known, proof))
        known, proof = failed[0]
        trial = Trial(random.Random(1), proof.sizes, known, TRIES)
        for shown in chain(self.natively(trial), runs[known]):
            detail = f"{proof.detail}: {shown.detail}"
            return Outcome(Status.REFUTED, detail, known, shown.evidence, proof)
        detail = f"{proof.detail}; no values were found that show it"
        return Outcome(Status.INCONCLUSIVE, detail, proof=proof)

    def _proof(
        self, known: tuple[Departure, ...], seconds: float, name: str, proved: set[str]
    ) -> Proof:
        """Prove it, unless the same was proved of the same code."""
        state = partial(self.statement, known=known)
        try:
            digest = state(Arithmetic()).digest(name, repr(known))
        except Unsupported:  # which the proof says, too
            digest = ""
        if digest in proved:
            return Proof(Verdict.PROVED)
        proof = prove(state, seconds)
        if digest and proof.verdict is Verdict.PROVED:
            proved.add(digest)
        return proof


class OfManager(Settling):
    """A statement about one method of the manager of a kind."""

    method: ClassVar[str]
    """The name of the method."""

    def __init__(self, subject: VllmSubject, kind: GroupKind) -> None:
        self._parts, self._kind = subject.parts, kind
        self._manager = self._parts.manager_class(kind)
        self._function = attribute(self._manager, self.method)

    def _given(self, values: Mapping[str, Any], given: Sequence[str] = ("self",)) -> dict[str, Any]:
        """The arguments of a call, by its own names, without those that are ``given`` already."""
        where = f"{self._manager.__name__}.{self.method}"
        return spelled(self._function, arguments(self._function, dict(values), where, given=given))

    def _spec(self, **fields: Any) -> Record:
        """A ``KVCacheSpec`` of the kind that has these fields."""
        return Record(type(self._parts.spec(limited(self._kind, 1, 2))), fields)


def limited(kind: GroupKind, block_size: int, limit: int, eagle: bool = False) -> Group:
    """A group of a kind: a window of ``limit`` tokens, or chunks of ``limit`` blocks."""
    window = limit if kind is GroupKind.SLIDING_WINDOW else None
    chunk = limit * block_size if kind is GroupKind.CHUNKED_LOCAL else None
    return Group(kind, block_size, window, eagle, chunk)


def called(function: Any) -> Any:
    """What a function returns that has its arguments."""
    return function()


def numbers_in(function: Any) -> set[int]:
    """The numbers that are written in a function or method."""
    function = getattr(function, "__func__", function)
    return literals(function) if isinstance(function, FunctionType) else set()
