"""Broken subjects: the reference with one deliberate fault each, and odd ways to look up."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from hitproof.conformance.scope.configurations import Configuration
from hitproof.conformance.scope.layouts import Layout
from hitproof.conformance.subject.lookups import Lookup, LookupAnswer
from hitproof.conformance.tests.reference_subject import ReferenceLookup, ReferenceSubject
from hitproof.reference.lookup import Lookup as GroupLookup
from hitproof.spec.groups import BlockGeometry
from hitproof.spec.mask import in_mask

Answer = Callable[[LookupAnswer, Any, Configuration], LookupAnswer]
Shape = Callable[[BlockGeometry], BlockGeometry]


def unchanged(shape: BlockGeometry) -> BlockGeometry:
    return shape


class BrokenLookup(ReferenceLookup):
    """The reference's lookup on a distorted geometry, with a distorted answer."""

    def __init__(self, configuration: Configuration, shape: Shape, answer: Answer | None) -> None:
        super().__init__(configuration)
        self._lookup = GroupLookup(shape(configuration.shape))
        self._configuration = configuration
        self._distort = answer

    @property
    def inputs(self) -> Sequence[object]:
        return (*super().inputs, self._configuration)

    def __call__(self, pool: Any, max_length: int) -> LookupAnswer:
        answer = super().__call__(pool, max_length)
        return self._distort(answer, pool, self._configuration) if self._distort else answer


class BrokenSubject(ReferenceSubject):
    """The reference with a fault in its lookup, its mask or both."""

    def __init__(
        self,
        shape: Shape = unchanged,
        answer: Answer | None = None,
        mask: Shape = unchanged,
        registers: Callable[[int], bool] | None = None,
    ) -> None:
        self._shape = shape
        self._answer = answer
        self._mask = mask
        self._registers = registers

    def lookup(self, judged: Configuration | Layout) -> Lookup:
        assert isinstance(judged, Configuration)
        return BrokenLookup(judged, self._shape, self._answer)

    def registered(
        self, configuration: Configuration, chunks: Sequence[int], alone: bool = False
    ) -> list[bool]:
        del alone
        shape = self._mask(configuration.shape)
        return [
            self._registers(block) if self._registers else bool(in_mask(shape, block))
            for block in range(chunks[-1] // configuration.group.block_size)
        ]


def no_lookahead(shape: BlockGeometry) -> BlockGeometry:
    return replace(shape, lookahead=0)


def shorter_tail(shape: BlockGeometry) -> BlockGeometry:
    return replace(shape, tail=max(shape.tail - 1, 0))


def longer_tail(shape: BlockGeometry) -> BlockGeometry:
    return replace(shape, tail=shape.tail + 1)


def wider_segment(shape: BlockGeometry) -> BlockGeometry:
    return replace(shape, segment=shape.segment * 2)
