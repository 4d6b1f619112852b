"""A block pool whose content is decided question by question, and what a lookup can ask of it."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import FrameType
from typing import Any, Protocol, TypeAlias, TypeVar

from hitproof.conformance.subject.failures import CannotJudge

Question: TypeAlias = tuple[int, int]
"""A set of groups that are looked up together, by its index in the lookup, and a block of it."""

Decide: TypeAlias = Callable[[Question, FrameType, tuple[Any, ...]], bool]
"""Whether the block of a question is cached, which the frame asks with those arguments."""

_Thrown = TypeVar("_Thrown", bound=BaseException)
_Candidate: TypeAlias = tuple[int, int, int]
"""A hit: its tokens, what it requires, and all blocks up to the last required ones, in bits."""
_Asked: TypeAlias = tuple[tuple[Question | None, ...], tuple[tuple[Question | None, int], ...]]


OF_POOLS = frozenset({"get_cached_block", "hash_block_size", "null_block"})
"""What lookups use of a pool."""


class Forgotten(BaseException):
    """The run used something that merging forgets, or does what merging does not compare."""


class Supervisor(Protocol):
    """Watches a lookup, but not the pool.

    Attributes:
        active: whether it watches yet.
    """

    active: bool

    def pause(self) -> None:
        """Look away while the pool is asked."""

    def resume(self) -> None:
        """Look at the lookup again."""


class SymbolicBlock:
    """A cached block as lookup receives it; `_watch` is called when the lookup reads it.

    Attributes:
        question: the question that it answers.
        group_id: the KV cache group whose block it is.
    """

    __slots__ = ("_number", "_watch", "group_id", "question")

    def __init__(
        self,
        question: Question,
        group_id: int,
        watch: Callable[[], None],
        number: int | None = None,
    ) -> None:
        self.question = question
        self.group_id = group_id
        self._watch = watch
        self._number = question[1] + 1 if number is None else number

    @property
    def index(self) -> int:
        """Which block of the request it is, from 0."""
        return self.question[1]

    is_null_block = False

    @property
    def is_null(self) -> bool:
        """VLLM's ``KVCacheBlock.is_null``."""
        self._watch()
        return self.is_null_block

    @property
    def block_id(self) -> int:
        """VLLM's ``KVCacheBlock.block_id``; 0 is the null block."""
        self._watch()
        return 0 if self.is_null_block else self._number

    def __eq__(self, other: object) -> bool:
        self._watch()
        return self is other

    def __hash__(self) -> int:
        self._watch()
        return object.__hash__(self)

    def __repr__(self) -> str:
        self._watch()
        return object.__repr__(self)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise CannotJudge(f"lookup reads KVCacheBlock.{name}, which hitproof does not model")


class SymbolicNullBlock(SymbolicBlock):
    """The null block as lookup receives it."""

    __slots__ = ()
    is_null_block = True


class Recall:
    """The blocks of runs that are merged, which one run after the other receives.

    It makes no difference which objects they are, since a lookup that could tell is not merged.

    Attributes:
        noticed: how a run used what merging forgets; "" where it did not.
        blocks: the blocks that an answer has, by what was asked.
    """

    def __init__(self) -> None:
        self.noticed = ""
        self.blocks: dict[tuple[Any, ...], tuple[SymbolicBlock, ...]] = {}

    def looked_into(self) -> None:
        """Note that a run looks into a block."""
        self.noticed = self.noticed or "it looks into blocks"


@dataclass(frozen=True)
class Candidate:
    """A hit that lookup may serve, in tokens, and the blocks that it requires."""

    length: int
    required: frozenset[Question]

    @cached_property
    def ends(self) -> tuple[Question, ...]:
        """The last required block of each set of groups."""
        ends: dict[int, int] = {}
        for group, block in self.required:
            ends[group] = max(block, ends.get(group, block))
        return tuple(ends.items())


@dataclass(frozen=True)
class Space:
    """What a lookup can ask, and what it may serve.

    Attributes:
        keys: for each KV cache group and each key of its blocks, the question that they answer.
        hash_block_size: tokens that one block hash covers.
        hits: every hit that lookup may serve, shortest first; length 0, no hit, is always possible.
        several: whether several sets of groups are looked up, so that one set may be asked about
            again after another has shortened the candidate.
    """

    keys: Mapping[tuple[int, bytes], Question]
    hash_block_size: int
    hits: tuple[Candidate, ...]
    several: bool = False

    @property
    def questions(self) -> int:
        """How many different questions there are: n, for 2^n cache states."""
        return len(set(self.keys.values()))

    @cached_property
    def bits(self) -> dict[Question, int]:
        """A bit for each question, so that sets of them are ints."""
        questions = {*self.keys.values()}.union(*(hit.required for hit in self.hits))
        return {question: 1 << place for place, question in enumerate(sorted(questions))}

    @cached_property
    def candidates(self) -> tuple["_Candidate", ...]:
        """The hits, in bits."""
        found = []
        for hit in self.hits:
            ends = dict(hit.ends)
            required = sum(self.bits[question] for question in hit.required)
            reached = sum(
                bit for (group, block), bit in self.bits.items() if block <= ends.get(group, -1)
            )
            found.append((hit.length, required, reached))
        return tuple(found)

    @cached_property
    def _asked(self) -> dict[tuple[Any, ...], _Asked]:
        return {}

    def asked(self, key: tuple[Any, ...]) -> _Asked:
        """What a lookup asks by a hash and groups: the questions, and those of each group."""
        known = self._asked.get(key)
        if known is None:
            block_hash, *group_ids = key
            pairs = [(self.keys.get((group, block_hash)), group) for group in group_ids]
            known = self._asked[key] = tuple(dict.fromkeys(q for q, _ in pairs)), tuple(pairs)
        return known


class SymbolicPool:
    """A block pool whose contents are decided question by question.

    It has what lookups use of vLLM's ``BlockPool``: ``get_cached_block``, ``null_block`` and
    ``hash_block_size``. With ``recall`` the run is to be merged with others. ``number`` gives
    blocks other numbers than those of their places. The first answers are ``given``, with the
    questions that are expected.

    Attributes:
        answers: the questions that were asked, and their answers.
        raised: what was raised that a lookup has no reason to catch.
    """

    def __init__(
        self,
        space: Space,
        decide: Decide,
        recall: Recall | None = None,
        supervisor: Supervisor | None = None,
        number: Callable[[Question], int] | None = None,
        given: Sequence[tuple[Question, bool]] = (),
    ) -> None:
        self.hash_block_size = space.hash_block_size
        self.answers: dict[Question, bool] = {}
        self.raised: BaseException | None = None
        self._space = space
        self._decide = decide
        self._recall = recall
        self._supervisor = supervisor
        self._number = number
        self._given = given
        self._blocks: dict[tuple[Question, int], SymbolicBlock] = {}
        self._bits = space.bits if recall else {}
        self._open: Sequence[_Candidate] = space.candidates if recall else ()
        self._asked = self._cached = self._ruled_out_by = 0
        self._looked_into = _nothing
        if recall is not None:
            recall.noticed, self._looked_into = "", recall.looked_into
        self.null_block = SymbolicNullBlock((-1, -1), -1, self._looked_into)

    def thrown(self, error: _Thrown) -> _Thrown:
        """The exception, which is raised into the lookup from now on."""
        self.raised = error
        return error

    def get_cached_block(
        self, block_hash: bytes, kv_cache_group_ids: Sequence[int]
    ) -> list[SymbolicBlock] | None:
        """The blocks registered under ``block_hash``, one per group, or None."""
        supervisor = self._supervisor
        if supervisor is None:
            return self._cached_block(block_hash, kv_cache_group_ids, sys._getframe(1))
        if supervisor.active:
            supervisor.pause()
        try:
            return self._cached_block(block_hash, kv_cache_group_ids, sys._getframe(1))
        finally:
            supervisor.resume()

    def _cached_block(
        self, block_hash: bytes, group_ids: Sequence[int], asker: FrameType
    ) -> list[SymbolicBlock] | None:
        if self.raised is not None:
            raise self.raised
        key = (block_hash, *group_ids)
        questions, of_groups = self._space.asked(key)
        answers, recall = self.answers, self._recall
        for question in questions:
            # No block of a group may end where that hash does.
            if question is None:
                return None
            cached = answers.get(question)
            if cached is None:
                level = len(answers)
                if level < len(self._given):
                    expected, cached = self._given[level]
                    if question != expected:
                        raise self.thrown(
                            CannotJudge("lookup behaves differently when it is run twice")
                        )
                else:
                    cached = self._decide(question, asker, key)
                answers[question] = cached
                if recall is not None:
                    bit = self._bits[question]
                    self._asked |= bit
                    if cached:
                        self._cached |= bit
            elif recall is not None and not self._bits[question] & self._remembered():
                recall.noticed = recall.noticed or "it asks again what it may not need any more"
            if not cached:
                return None
        if recall is not None:
            blocks = recall.blocks.get(key)
            if blocks is None:
                blocks = recall.blocks[key] = tuple(
                    SymbolicBlock(question, group, recall.looked_into)
                    for question, group in of_groups
                    if question
                )
            return list(blocks)
        return [self._block(question, group) for question, group in of_groups if question]

    def undecided(self) -> list[tuple[int, int]]:
        """The candidates that no missing block rules out, with what was not asked of them.

        Their lengths in tokens and, like all of them while merging, in bits of the space.
        """
        asked = self._asked
        return [(length, required & ~asked) for length, required, _ in self._still_open()]

    def known(self) -> tuple[int, int]:
        """The answers that merging keeps: which questions, and which of these are cached."""
        kept = self._remembered()
        return kept, kept & self._cached

    def _remembered(self) -> int:
        """The questions about blocks that an undecided candidate reaches.

        A lookup over several groups asks again when another group has shortened its candidate.
        Since candidates are only ever ruled out, an answer kept later was also kept before. A
        lookup in one set of groups has no reason to ask again, and keeping its answers would only
        distinguish equal states.
        """
        if not self._space.several:
            return 0
        reached = 0
        for _, _, below in self._still_open():
            reached |= below
        return reached & self._asked

    def _still_open(self) -> Sequence[_Candidate]:
        missing = self._asked & ~self._cached
        if missing != self._ruled_out_by:
            self._open = [hit for hit in self._open if not hit[1] & missing]
            self._ruled_out_by = missing
        return self._open

    def _block(self, question: Question, group_id: int) -> SymbolicBlock:
        """The block of a group: the same object each time."""
        known = self._blocks.get((question, group_id))
        if known is None:
            number = None if self._number is None else self._number(question)
            known = SymbolicBlock(question, group_id, self._looked_into, number)
            self._blocks[question, group_id] = known
        return known

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise self.thrown(
            CannotJudge(f"lookup uses BlockPool.{name}, which hitproof does not model")
        )


def _nothing() -> None:
    """Where nothing is merged, nothing is forgotten that a run could look into."""
