"""How two versions of a function are compared: by values, and by a proof; those of coordinators.

Coordinators are real ones of groups of some kinds, with symbols for their sizes. Their groups'
lookups are not executed: both versions must call the same ones, in the same order.
"""

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MethodType
from typing import Any

from hitproof.conformance.checks.spaces import space_of
from hitproof.conformance.exploration.explorer import replay
from hitproof.conformance.subject.failures import CannotJudge, InternalError
from hitproof.proofs.unbounded.coordinators import AnyCoordinator, Asked
from hitproof.proofs.unbounded.equality import Pair, prove_equal, told
from hitproof.proofs.unbounded.machine import Machine
from hitproof.proofs.unbounded.proving import Proof, Verdict
from hitproof.proofs.unbounded.terms import Arithmetic
from hitproof.proofs.unbounded.values import Block, Contract, Listing
from hitproof.spec.claims import Status
from hitproof.spec.groups import GroupKind
from hitproof.vllm_integration.adapter.lookups import VllmCommonLookup
from hitproof.vllm_integration.adapter.subject import VllmSubject
from hitproof.vllm_integration.worker.coordinators import Coordinated, Lifted, some_blocks
from hitproof.vllm_integration.worker.settling import numbers_in

FIND = "find_longest_cache_hit"

_TRIES = 3000
"""On how many values both versions run to show what fails."""
_FIRST = 500
"""On how many they run before a proof is tried."""
_AGREEING = 100
"""On how many they run beside a proof."""

_FULL, _WINDOW = GroupKind.FULL_ATTENTION, GroupKind.SLIDING_WINDOW
_STATE = GroupKind.MAMBA
_ALONE = tuple(((kind, drops),) for kind in (_FULL, _WINDOW, _STATE) for drops in (False, True))
_TOGETHER = (
    ((_FULL, False), (_WINDOW, False)),
    ((_FULL, True), (_WINDOW, True)),
    ((_FULL, True), (_STATE, False)),
    ((_WINDOW, False), (_WINDOW, False)),
    ((_WINDOW, True), (_WINDOW, False)),
)
"""The groups of the coordinators that are compared: their kinds, and which drop a block."""


@dataclass(frozen=True)
class Equivalence:
    """What is known of two versions of a function.

    Attributes:
        status: proved to do the same for all arguments, refuted by values, or inconclusive.
        detail: how they differ and with which values, or why nothing is known; of what is proved,
            for which arguments, if not for all.
    """

    status: Status
    detail: str = ""


def compared(
    name: str,
    difference: Callable[[int, Mapping[str, int]], str],
    proofs: Iterable[Callable[[], Proof]],
) -> Equivalence:
    """Prove both versions equivalent by all of these proofs, or distinguish them by values.

    ``difference`` says how they differ on that number of values, some of them like those given.
    """
    if differs := difference(_FIRST, {}):  # mostly it takes no solver
        return Equivalence(Status.REFUTED, differs)
    proof = Proof(Verdict.INCONCLUSIVE, "it has no arguments that are described")
    for prove in proofs:
        proof = prove()
        if proof.verdict is not Verdict.PROVED:
            break
    if proof.verdict is Verdict.INCONCLUSIVE:
        return Equivalence(Status.INCONCLUSIVE, proof.detail)
    proved = proof.verdict is Verdict.PROVED
    differs = difference(_AGREEING if proved else _TRIES, proof.sizes)
    if differs and proved:
        raise InternalError(f"{name} is proved equivalent, but differs: {differs}")
    if differs:
        return Equivalence(Status.REFUTED, differs)
    if not proved:
        detail = f"{proof.detail}; no values were found that show it"
        return Equivalence(Status.INCONCLUSIVE, detail)
    return Equivalence(Status.PROVED)


class _AnyCalls(AnyCoordinator):
    """A coordinator of any sizes, of whose groups' lookups nothing is known."""

    def lookup(self, number: int, read: Callable[..., Asked]) -> Contract:
        """A group's lookup: the same calls give the same."""
        assert isinstance(read, MethodType)
        lifted: Any = read.__self__

        def found(machine: Machine, name: str) -> Any:
            here = machine.arithmetic
            block = Block(here.atom(f"block of {name}", -1), number)
            blocks = here.atom(f"blocks of {name}", 0)
            tables = (Listing(None, blocks, block, born=machine.tick()),)
            length = here.atom(f"length of {name}", 0)
            return (tables, length) if lifted.gives_length[number] else tables

        return told(lifted.signatures[number], found, number)


@dataclass(frozen=True)
class CoordinatorVersions:
    """Two versions of a coordinator's lookup, each with its class."""

    subject: VllmSubject
    one: Any
    other: Any
    own: type
    of_other: type

    def settle(self, name: str, seconds: float) -> Equivalence:
        """Prove them equivalent, or distinguish them by values."""
        alone = self.own.__name__.startswith("Unitary")
        described = [
            each for kinds in (_ALONE if alone else _TOGETHER) if (each := self._of(kinds))
        ]
        numbers = [n for f in (self.one, self.other) for n in numbers_in(f) if 2 < n < 200]
        chance = random.Random(0)

        def difference(tries: int, near: Mapping[str, int]) -> str:
            each = (self._difference(of, tries, near, numbers, chance) for of in described)
            return next(filter(None, each), "")

        states = (partial(self._state, each) for each in described)
        known = compared(name, difference, (partial(prove_equal, s, seconds) for s in states))
        if known.status is not Status.PROVED:
            return known
        return Equivalence(Status.PROVED, "for groups of " + "; ".join(map(_in_words, described)))

    def _of(self, kinds: Any) -> Coordinated | None:
        """Real coordinators of groups of these kinds; None where there are none."""
        try:
            made = Coordinated(self.subject, kinds)
        except CannotJudge:
            return None
        return made if type(made.real[0]) is self.own else None

    def _state(self, of: Coordinated, here: Arithmetic) -> Pair:
        any_ = _AnyCalls(here, of.kinds, of.policy, lambda _: True)
        lifted = Lifted(of, any_)
        given = {
            "self": lifted.record,
            "block_hashes": any_.hashes,
            "max_cache_hit_length": any_.cap,
        }
        types, premises = {self.own: self.of_other}, tuple(any_.premises)
        versions = self.one, self.other
        return Pair(versions, lambda _: given, types, premises=premises, sizes=any_.sizes)

    def _difference(
        self,
        of: Coordinated,
        tries: int,
        near: Mapping[str, int],
        numbers: list[int],
        chance: random.Random,
    ) -> str:
        """How the versions differ on real coordinators."""
        for number in range(tries // 20):
            layout = of.some_layout(chance, near if number % 2 else {}, numbers)
            if layout is None:
                continue
            lookup = self.subject.lookup(layout)
            coordinator, hashes = lookup.inputs[0], lookup.inputs[-1]
            for _ in range(10):
                least = max(0, layout.num_tokens - 3 * layout.alignment)
                most = chance.randint(least, layout.num_tokens - 1)
                state, results = some_blocks(chance, layout, most), []
                for version in (self.own, self.of_other):
                    coordinator.__class__ = version
                    made = _Noting(coordinator, hashes, lookup.keys)
                    answer = replay(space_of(layout, made, most, of.policy), made, most, state)
                    length = getattr(answer, "hit_length", None)
                    found = type(answer).__name__ if length is None else f"{length} tokens"
                    results.append((found, *made.returned))
                coordinator.__class__ = self.own
                if results[0] != results[1]:
                    first, second = (each[0] for each in results)
                    second = "other blocks" if first == second else second
                    return f"{first} instead of {second} with {layout.describe()}, at most {most}"
        return ""


class _Noting(VllmCommonLookup):
    """A lookup that notes what the coordinator returns, blocks by their ids."""

    def __init__(self, *of: Any) -> None:
        super().__init__(*of)
        find, self.returned = self._find, list[Any]()

        def noting(*given: Any) -> Any:
            tables, *rest = find(*given)
            self.returned = [[[block.block_id for block in each] for each in tables], *rest]
            return tables, *rest

        self._find = noting


def _in_words(of: Coordinated) -> str:
    groups = [f"{kind.replace('_', ' ')}{' (EAGLE)' if drops else ''}" for kind, drops in of.kinds]
    return " and ".join(groups)
