"""Two versions of functions of vLLM, proved equivalent, or distinguished by values.

The other version's text of the modules that differ is imported beside the target's own, so that
both are in one process. Everything else is the target's.
"""

import copy
import hashlib
import importlib
import importlib.abc
import importlib.machinery
import inspect
import linecache
import math
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from enum import Enum
from functools import partial
from itertools import product, zip_longest
from types import FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any

from hitproof.conformance.scope.configurations import Configuration
from hitproof.conformance.subject.failures import InternalError
from hitproof.proofs.errors import PathError
from hitproof.proofs.unbounded.equality import Pair, Result, prove_equal, told
from hitproof.proofs.unbounded.loops import Shapes
from hitproof.proofs.unbounded.machine import Machine
from hitproof.proofs.unbounded.source import Unsupported, literals
from hitproof.proofs.unbounded.terms import Arithmetic
from hitproof.proofs.unbounded.values import (
    NULL,
    Block,
    Bound,
    Contract,
    Entries,
    Items,
    Key,
    Listing,
    Maybe,
    Record,
)
from hitproof.spec.claims import Status
from hitproof.spec.groups import Group, GroupKind
from hitproof.spec.terms import Formula, Term
from hitproof.vllm_integration.adapter.groups import KINDS
from hitproof.vllm_integration.adapter.inspection import attribute
from hitproof.vllm_integration.adapter.parts import Parts
from hitproof.vllm_integration.adapter.subject import VllmSubject
from hitproof.vllm_integration.worker.versions import (
    FIND,
    CoordinatorVersions,
    Equivalence,
    compared,
)

_FAR = 1000
"""Up to which number in the code they run on sizes next to it."""

_RANKS = ("dcp_world_size", "pcp_world_size")
_AT_LEAST_ONE = (
    *_RANKS,
    "block_size",
    "hash_block_size",
    "scheduler_block_size",
    "alignment_tokens",
    "cache_hit_alignment_tokens",
    "sliding_window",
    "attention_chunk_size",
)
_OWN = ("block_size", "scheduler_block_size", "cache_hit_alignment_tokens", "kv_cache_group_id")
"""The numbers that a manager has beside those of its spec."""


class _Ends(Enum):
    """Where hits end, by ``alignment_tokens``. A function has all calls of some of these."""

    BLOCKS = "at whole blocks of all ranks"
    HASHES = "at hashes, of which a block has several"
    ELSEWHERE = "at neither; only masks are asked for that"


_MOST_IDS = 3
"""Up to how many groups that are alike, and looked up together, the functions run."""

_REQUEST, _REGISTER = "request", "cache_full_blocks"
_BLOCKS = 3
"""How many blocks a request has beside those of its tokens."""


def add(item: Any) -> Any:
    """How a manager tells others of a block: by a set."""
    return item


def append(item: Any) -> Any:
    """The same by a list."""
    return item


def _any_mask(machine: Machine, name: str) -> Listing | None:
    here = machine.arithmetic
    if machine.decide(here.flag(f"{name} is None")):
        return None
    length = here.atom(f"len({name})", 0)
    return Listing(None, length, here.flag(name), born=machine.tick())


_CALLED: dict[str, Result] = {
    "reachable_block_mask": _any_mask,
    "_cache_block_mask": _any_mask,
    "_cache_partial_tail_block": lambda machine, name: Maybe(
        machine.arithmetic.flag(name), (name,)
    ),
}
"""Methods that are not executed in others, with what they may return."""

_LOOKED_UP = frozenset(("block_pool", "hash_block_size"))
"""Parameters of functions whose block sizes are whole numbers of hashes."""


class _Texts(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Finds modules by their texts."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        del path, target
        if fullname not in self._texts:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, origin=self._name(fullname))

    def get_source(self, fullname: str) -> str:
        text, name = self._texts[fullname], self._name(fullname)
        linecache.cache[name] = len(text), None, text.splitlines(keepends=True), name
        return text

    def get_code(self, fullname: str) -> Any:
        return compile(self.get_source(fullname), self._name(fullname), "exec", dont_inherit=True)

    def _name(self, fullname: str) -> str:
        digest = hashlib.sha256(self._texts[fullname].encode()).hexdigest()
        return f"other version {digest}/{fullname.replace('.', '/')}.py"


def imported(texts: Mapping[str, str]) -> dict[str, ModuleType]:
    """Modules of these texts, by name, each of which sees the others of them."""
    own = {name: sys.modules.pop(name) for name in texts if name in sys.modules}
    finder = _Texts(texts)
    sys.meta_path.insert(0, finder)
    try:
        return {name: importlib.import_module(name) for name in texts}
    finally:
        sys.meta_path.remove(finder)
        for name in texts:
            sys.modules.pop(name, None)
        sys.modules.update(own)
        for name, module in own.items():
            parent, _, last = name.rpartition(".")
            setattr(sys.modules[parent], last, module)


class _Arguments:
    """Arguments of a function of vLLM by the names and types of its parameters.

    Attributes:
        numbers: the numbers among them, by name.
    """

    def __init__(self, parts: Parts, kind: GroupKind | None, ids: int) -> None:
        self._parts = parts
        self._kind = kind
        self._ids = list(range(ids))
        self._names: frozenset[str] = frozenset()
        self.numbers: dict[str, Any] = {}

    @property
    def _looks_up(self) -> bool:
        return not _LOOKED_UP.isdisjoint(self._names)

    @property
    def _registers(self) -> bool:
        return "request" in self._names

    def of(self, function: Any, manager: type | None) -> dict[str, Any]:
        """An argument for each parameter. Raises `Unsupported`."""
        self._names = frozenset(inspect.signature(function).parameters)
        return {
            name: self._of_parameter(name, str(parameter.annotation), manager)
            for name, parameter in inspect.signature(function).parameters.items()
        }

    def _of_parameter(self, name: str, annotation: str, manager: type | None) -> Any:
        type_ = annotation.replace("<class '", "").replace("'>", "").rpartition("abc.")[2]
        match name, type_:
            case "self", _ if manager is not None:
                return self.manager(manager)
            case "request", _:
                return self.request()
            case "block_hashes", _:
                return self.hashes()
            case "kv_cache_group_ids", _:
                return self.listing(list(self._ids))
            case "block_pool", _:
                return self.pool()
            case "kv_cache_spec", _ if self._kind is not None:
                return self.spec()
            case _, "int":
                return self.number(name)
            case _, "bool":
                return self.truth(name)
            case _, "int | None":
                return self.number(name) if self.truth(f"{name} is given") else None
            case _, "Sequence[int]" | "tuple[int, ...]":
                return self.sequence(name)
        raise Unsupported(f"the parameter {name} of type {type_ or 'unknown'}")

    def number(self, name: str) -> Any:
        """A number; sizes are at least 1."""
        if name not in self.numbers:
            self.numbers[name] = self._new(name, _least(name))
        return self.numbers[name]

    def _of_ranks(self) -> Any:
        """The tokens of a block of all ranks."""
        ranks = [self.number(name) for name in _RANKS if name in self._names]
        return math.prod(ranks, start=self.number("block_size"))

    def _group(self) -> Group:
        kind, size = self._kind, 2
        if kind is None:
            raise Unsupported("an object that is no manager of a kind of groups")
        window = size if kind is GroupKind.SLIDING_WINDOW else None
        return Group(kind, size, window, False, size if kind is GroupKind.CHUNKED_LOCAL else None)

    def _new(self, name: str, least: int | None) -> Any:
        raise NotImplementedError

    def truth(self, name: str) -> Any:
        """A truth value."""
        raise NotImplementedError

    def hashes(self) -> Any:
        """The hashes of a request."""
        raise NotImplementedError

    def listing(self, items: list[Any]) -> Any:
        """A list."""
        raise NotImplementedError

    def pool(self) -> Any:
        """A block pool with any cache."""
        raise NotImplementedError

    def sequence(self, name: str) -> Any:
        """Numbers of any length."""
        raise NotImplementedError

    def request(self) -> Any:
        """A request; the manager has its blocks."""
        raise NotImplementedError

    def spec(self) -> Any:
        """The spec of a group."""
        raise NotImplementedError

    def manager(self, of: type) -> Any:
        """A manager of a group."""
        raise NotImplementedError


def _least(name: str) -> int | None:
    if name in _AT_LEAST_ONE:
        return 1
    return 0 if name.startswith(("num_", "max_", "start_", "end_")) else None


class _AnyArguments(_Arguments):
    """Symbols: any values."""

    def __init__(
        self,
        parts: Parts,
        kind: GroupKind | None,
        here: Arithmetic,
        decide: Callable[[Formula], bool],
        ends: _Ends,
        ids: int,
    ) -> None:
        super().__init__(parts, kind, ids)
        self._here, self._decide, self._ends = here, decide, ends

    def _new(self, name: str, least: int | None) -> Term:
        here = self._here
        if name in _RANKS:  # with a product of one rank the solver takes long
            return 1 if self.truth(f"{name} is 1") else here.atom(name, 2)
        if name == "block_size" and self._looks_up:
            return here.atom("hashes in a block", 1) * self.number("hash_block_size")
        if name == "alignment_tokens" and self._ends is _Ends.BLOCKS:
            return here.atom("blocks between hits", 1) * self._of_ranks()
        if name == "alignment_tokens" and self._ends is _Ends.HASHES:
            return self.number("hash_block_size")
        return here.atom(name, least)

    def truth(self, name: str) -> bool:
        return self._decide(self._here.flag(name))

    def hashes(self) -> Items:
        return Items(self.number("num_hashes"), Key, list)

    def listing(self, items: list[Any]) -> Listing:
        return Listing(items)

    def pool(self) -> Record:
        def get(machine: Machine, block_hash: Any, kv_cache_group_ids: Any) -> Listing | None:
            ids, key = kv_cache_group_ids, block_hash
            if not (isinstance(key, Key) and isinstance(ids, Listing) and ids.items == self._ids):
                raise Unsupported("a question to the block pool that is not about a block")
            if not machine.decide(self._here.holds_at("cached", key.place)):
                return None
            return machine.new_list([Block(key.place, number) for number in self._ids])

        own = {"null_block": NULL, "hash_block_size": self.number("hash_block_size")}
        of = self._parts.pools.BlockPool
        if self._registers:
            real = attribute(of, _REGISTER)
            own[_REGISTER] = Bound(told(real, lambda machine, _: machine.change_hashes()), None)
        return Record(of, {**own, "get_cached_block": Contract(get)})

    def sequence(self, name: str) -> Items:
        item = self._here.item
        return Items(self._here.atom(f"len({name})", 0), lambda at: item(name, at), tuple)

    def spec(self) -> Record:
        real = self._parts.spec(self._group())
        whole = [each.name for each in fields(real) if str(each.type) in ("int", "<class 'int'>")]
        return Record(type(real), {name: self.number(name) for name in whole})

    def manager(self, of: type) -> Record:
        spec = self.spec()
        real = vars(_real_manager(self._parts, of, self._group()))
        names = [name for name in (*spec.attributes, *_OWN) if type(real.get(name)) is int]
        own = {name: self.number(name) for name in names}
        own |= {name: self._here.atom(f"own {name}", 1) for name in _RANKS if name in real}
        flags = {n: self._here.flag(n) for n, value in real.items() if type(value) is bool}
        more = {n: value for n, value in self._bookkeeping().items() if n in real}
        return Record(
            of, {**own, **flags, **more, "kv_cache_spec": spec, "block_pool": self.pool()}
        )

    def request(self) -> Record:
        own = {
            "request_id": _REQUEST,
            "block_hashes": self.hashes(),
            "num_prompt_tokens": self.number("num_prompt_tokens"),
            "shared_prefix_boundary": self.number("shared_prefix_boundary"),
        }
        return Record(self._parts.requests.Request, own)

    def _bookkeeping(self) -> dict[str, Any]:
        """What a manager knows of the request, if anything, and what it tells others."""
        if not self._registers:
            return {}

        def block(place: Term) -> Block:
            return NULL if self._decide(self._here.holds_at("missing", place)) else Block(place)

        blocks = Items(self._here.atom("num_blocks", 0), block, list)
        before = self.truth("some blocks are registered")
        counted = {_REQUEST: self._here.atom("num_cached_blocks", 0)} if before else {}
        noted = Record(object, {each.__name__: told(each) for each in (add, append)})
        return {
            "num_cached_block": Entries(counted),
            "req_to_blocks": Entries({_REQUEST: blocks}),
            "cached_blocks_this_step": noted,
            "_pending_boundary_state_offloads": noted,
            "mamba_cache_mode": "align" if self.truth("align") else "all",
            "_null_block": NULL,
        }


class _SomeArguments(_Arguments):
    """Values by chance, some of them like those ``near``."""

    def __init__(
        self,
        parts: Parts,
        kind: GroupKind | None,
        chance: random.Random,
        near: Mapping[str, int],
        marks: list[int],
    ) -> None:
        super().__init__(parts, kind, chance.randint(1, _MOST_IDS))
        self._chance, self._near, self._marks = chance, near, marks
        self._density = chance.choice([0.5, 0.8, 0.95, 1.0])

    def _new(self, name: str, least: int | None) -> int:
        chance = self._chance
        if name == "block_size" and self._looks_up:
            times = self._near.get(name, 0) // self.number("hash_block_size")
            drawn = chance.randint(1, 4) if chance.random() < 0.5 else times
            return int(max(drawn, 1) * self.number("hash_block_size"))
        if name == "alignment_tokens" and self._looks_up:
            if chance.random() < 0.5:
                return int(self.number("hash_block_size"))
            return int(self._of_ranks()) * chance.randint(1, 4)
        if name in self._near and chance.random() < 0.7:
            return max(self._near[name], self._near[name] if least is None else least)
        if self._marks and chance.random() < 0.2:
            return max(least or 0, chance.choice(self._marks))
        if name in _RANKS:
            return chance.choice([1, 1, 1, 2])
        if name in ("alignment_tokens", "retention_interval"):
            return int(self.number("block_size")) * chance.randint(1, 4)
        most = 40 if least == 0 else 12
        return chance.randint(0 if least is None else least, most)

    def truth(self, name: str) -> bool:
        del name
        return self._chance.random() < 0.5

    def hashes(self) -> list[bytes]:
        most = self.number("max_length") // self.number("hash_block_size")
        number = most + self._chance.randint(0, 3)
        return [each.to_bytes(4, "big") for each in range(number)]

    def listing(self, items: list[Any]) -> list[Any]:
        return items

    def pool(self) -> SimpleNamespace:
        cached: dict[bytes, list[Any] | None] = {}

        def get(block_hash: bytes, kv_cache_group_ids: list[int]) -> list[Any] | None:
            if block_hash not in cached:
                is_there = self._chance.random() < self._density
                cached[block_hash] = [object() for _ in kv_cache_group_ids] if is_there else None
            return cached[block_hash]

        size = self.number("hash_block_size")
        return SimpleNamespace(null_block=object(), hash_block_size=size, get_cached_block=get)

    def sequence(self, name: str) -> tuple[int, ...]:
        del name
        return tuple(self._chance.randint(0, 60) for _ in range(self._chance.randint(0, 3)))

    def spec(self) -> Any:
        size, kind = self.number("block_size"), self._kind
        window = self.number("sliding_window") if kind is GroupKind.SLIDING_WINDOW else None
        chunk = self.number("attention_chunk_size") if kind is GroupKind.CHUNKED_LOCAL else None
        return self._parts.spec(Group(self._group().kind, size, window, False, chunk))

    def manager(self, of: type) -> Any:
        size, kind = self.number("block_size"), self._kind
        window = self.number("sliding_window") if kind is GroupKind.SLIDING_WINDOW else None
        chunk = self.number("attention_chunk_size") if kind is GroupKind.CHUNKED_LOCAL else None
        eagle = self._registers and kind is not GroupKind.CHUNKED_LOCAL and self.truth("eagle")
        group = Group(self._group().kind, size, window, eagle, chunk)
        made = _real_manager(self._parts, of, group)
        if self._registers:
            hash_size = self.number("hash_block_size")
            made.block_pool = _Registering(hash_size)
            if hasattr(made, "_cache_partial_tail_block"):
                made._cache_partial_tail_block = made.block_pool.partial
            for name in _OWN[1:3]:
                if hasattr(made, name):
                    setattr(made, name, size * self._chance.randint(1, 4))
        return made

    def given(self, values: dict[str, Any]) -> dict[str, Any]:
        """The arguments, whose manager has blocks for the request."""
        if "request" in values:
            manager, request = values["self"], values["request"]
            most, chance = values["num_tokens"] // manager.block_size + _BLOCKS, self._chance
            blocks = [self._parts.utils.KVCacheBlock(number) for number in range(1, most + 1)]
            kept = chance.choice([0.5, 0.9, 1.0])
            null = manager.block_pool.null_block = self._parts.utils.KVCacheBlock(0)
            null.is_null = True
            blocks = [each if chance.random() < kept else null for each in blocks]
            manager.req_to_blocks[request.request_id] = blocks
            if chance.random() < 0.5:
                manager.num_cached_block[request.request_id] = chance.randint(0, most)
        return values

    def request(self) -> Any:
        size, chance = self.number("hash_block_size"), self._chance
        most = self.number("num_tokens")
        made = self._parts.request(max(1, most + chance.randint(-2, 2)), size)
        made.shared_prefix_boundary = chance.choice([0, chance.randint(0, most + 2)])
        return made


class _Registering:
    """A block pool that notes what is registered."""

    def __init__(self, hash_block_size: int) -> None:
        self.hash_block_size = hash_block_size
        self.null_block: Any = None
        self.noted: list[Any] = []

    def cache_full_blocks(
        self,
        request: Any,
        blocks: list[Any],
        num_cached_blocks: int,
        num_full_blocks: int,
        block_mask: list[bool] | None = None,
        **named: Any,
    ) -> None:
        """Note which blocks are registered, and give them a hash."""
        told = f"blocks {num_cached_blocks} to {num_full_blocks} registered, mask {block_mask}"
        ids = [each.block_id for each in blocks]
        self.noted.append(f"{told}, {named} of request {request.request_id}, {ids}")
        for place in range(num_cached_blocks, min(num_full_blocks, len(blocks))):
            block, due = blocks[place], block_mask is None or block_mask[place - num_cached_blocks]
            if due and not block.is_null:
                block._block_hash, block._block_hash_num_tokens = place, place + 1

    def partial(self, *given: Any, **_named: Any) -> int | None:
        """Note that the rest of a block may be registered."""
        self.noted.append(f"{len(given)} arguments for the rest of a block")
        return None


def _real_manager(parts: Parts, of: type, group: Group) -> Any:
    configuration = Configuration(1, 1, group.block_size, group, group.block_size)
    return parts.manager(of, configuration, parts.pool(configuration))


class Versions:
    """The target and, of some modules, another version."""

    def __init__(self, subject: VllmSubject, texts: Mapping[str, str]) -> None:
        self._subject, self._parts = subject, subject.parts
        self._other = imported(texts)

    def settle(self, module: str, name: str, seconds: float) -> Equivalence:
        """Prove both versions of a function equivalent, or distinguish them by values."""
        own, module_of_other = sys.modules[module], self._other.get(module, sys.modules[module])
        one, manager = _found(own, name)
        other, of_other = _found(module_of_other, name)
        if str(inspect.signature(_plain(one))) != str(inspect.signature(_plain(other))):
            return Equivalence(Status.INCONCLUSIVE, "its parameters differ")
        base = attribute(self._parts.managers, "SingleTypeKVCacheManager")
        of_groups = attribute(self._parts.coordinators, "KVCacheCoordinator")
        if manager is None or of_other is None:
            return _Versions(self._parts, one, other, None, {}).settle(name, seconds)
        if name.partition(".")[2] == FIND and issubclass(manager, of_groups):
            lookups = CoordinatorVersions(self._subject, one, other, manager, of_other)
            return lookups.settle(name, seconds)
        known = []
        for each in [manager.__name__] if manager is not base else KINDS:
            concrete = getattr(own, each)
            types = {concrete: getattr(module_of_other, each), manager: of_other}
            versions = _Versions(self._parts, one, other, concrete, types)
            known.append(versions.settle(name, seconds))
            if known[-1].status is Status.REFUTED:
                return known[-1]
        return next((each for each in known if each.status is not Status.PROVED), known[0])


@dataclass(frozen=True)
class _Versions:
    """Two versions of a function, and the class of the manager whose method it is, if any.

    Attributes:
        types: classes of which the other version has its own.
    """

    parts: Parts
    one: Any
    other: Any
    manager: type | None
    types: Mapping[type, type]

    @property
    def _kind(self) -> GroupKind | None:
        return KINDS.get("" if self.manager is None else self.manager.__name__)

    def _state(self, here: Arithmetic, ends: _Ends, ids: int) -> Pair:
        sizes: dict[str, Any] = {}

        def given(decide: Callable[[Formula], bool]) -> dict[str, Any]:
            any_ = _AnyArguments(self.parts, self._kind, here, decide, ends, ids)
            values = any_.of(self.one, self.manager)
            sizes.update(any_.numbers)
            return values

        start = Shapes(origin=here.atom("start_block", 0))
        versions, contracts = (self.one, self.other), self._contracts()
        return Pair(versions, given, self.types, contracts, shapes=start, sizes=sizes)

    def _contracts(self) -> dict[Any, Contract]:
        """Methods that both versions have alike, and that are not executed."""
        found: dict[Any, Contract] = {}
        if self.manager is None:
            return found
        for name, result in _CALLED.items():
            both = [getattr(of, name, None) for of in (self.manager, self.types[self.manager])]
            if name == _plain(self.one).__name__ or None in both:
                continue
            one, other = map(_plain, both)
            if inspect.getsource(one) == inspect.getsource(other):
                found[one] = found[other] = told(one, result)
        return found

    def settle(self, name: str, seconds: float) -> Equivalence:
        """Prove them equivalent, or distinguish them by values."""
        numbers = _numbers_in(self.one) | _numbers_in(self.other)
        marks = [each + more for each in sorted(numbers) if 2 < each < _FAR for more in (0, 1, 2)]
        chance = random.Random(0)

        def difference(tries: int, near: Mapping[str, int]) -> str:
            for number in range(tries):
                sizes = near if number % 2 else {}
                some = _SomeArguments(self.parts, self._kind, chance, sizes, marks)
                if differs := _run_on(some, self.one, self.other, self.manager, self.types):
                    return differs
            return ""

        proofs = (
            partial(prove_equal, partial(self._state, ends=ends, ids=ids), seconds)
            for ends, ids in _calls_of(self.one)
        )
        return compared(name, difference, proofs)


def _found(module: ModuleType, name: str) -> tuple[Any, type | None]:
    """A function by its qualified name, and the class whose method it is."""
    *outer, _ = name.split(".")
    owner: Any = module
    for each in outer:
        owner = getattr(owner, each)
    return getattr(owner, name.rpartition(".")[2]), owner if isinstance(owner, type) else None


def _plain(function: Any) -> FunctionType:
    plain = function.__func__ if isinstance(function, MethodType) else function
    if not isinstance(plain, FunctionType):
        raise Unsupported(f"a function that is a {type(plain).__name__}")
    return plain


def _calls_of(function: Any) -> Iterator[tuple[_Ends, int]]:
    """The calls of a function: where hits end, and how many groups are looked up together."""
    names = set(inspect.signature(function).parameters)
    ends = [_Ends.ELSEWHERE] if names.isdisjoint(_LOOKED_UP) else [_Ends.HASHES]
    if "alignment_tokens" in names:
        ends.insert(0, _Ends.BLOCKS)
    return product(ends, (1, 2) if "kv_cache_group_ids" in names else (1,))


def _numbers_in(function: Any) -> set[int]:
    return literals(_plain(function))


def _run_on(
    some: _SomeArguments, one: Any, other: Any, manager: type | None, types: Mapping[type, type]
) -> str:
    """How the results of both versions differ, with the arguments; "" if they do not."""
    given = some.given(some.of(one, manager))
    results: list[tuple[Any, list[Any]]] = []
    of: list[Mapping[type, type]] = [{}, types]
    for function, own_types in zip((one, other), of, strict=True):
        known: dict[int, Any] = {}
        values = {name: _own(value, own_types, known) for name, value in given.items()}
        try:
            result = function(**values)
        except Exception as error:
            results.append((type(error).__name__, []))
        else:
            results.append((result, [_left(value) for value in values.values()]))
    if results[0] == results[1]:
        return ""
    shown = {**some.numbers, **{n: v for n, v in given.items() if type(v) in (bool, tuple)}}
    told = ", ".join(f"{name} {value}" for name, value in shown.items())
    first, second = (_told(result) for result, _ in results)
    if first == second:
        first, second = _changes(*(left for _, left in results))
    return f"{first} instead of {second} with {told}"


def _changes(one: list[Any], other: list[Any]) -> tuple[str, str]:
    """What is different of what two versions leave."""
    for left, right in zip(one, other, strict=False):
        for each, instead in zip_longest(*map(_parts, (left, right)), fillvalue="nothing"):
            if each != instead:
                return f"{each:.160}", f"{instead:.160}"
    return "blocks", "other blocks"


def _parts(left: Any) -> list[str]:
    return [*map(str, left)] if isinstance(left, tuple) else []


def _own(value: Any, types: Mapping[type, type], known: dict[int, Any]) -> Any:
    """An argument for one version."""
    if type(value) is list:
        return list(value)
    if isinstance(getattr(value, "block_pool", None), _Registering):
        known |= {id(each): each for each in (value.kv_cache_spec,)}
        own: Any = copy.deepcopy(value, known)
        own.__class__ = types.get(type(value), type(value))
        return own
    if type(value) in types:
        own = object.__new__(types[type(value)])
        vars(own).update(vars(value))
        return own
    return value


def _left(value: Any) -> Any:
    """What a version has left in an argument that it may change."""
    pool = getattr(value, "block_pool", None)
    if not isinstance(pool, _Registering):
        return value if type(value) is list else None
    more = getattr(value, "cached_blocks_this_step", ()), value.num_cached_block
    handed = getattr(value, "_pending_boundary_state_offloads", ())
    pending = [(*rest, block.block_id, n) for *rest, block, n in handed]
    return *pool.noted, *more, pending


def _told(result: Any) -> str:
    match result:
        case (tuple() as tables, int() as length):
            return f"{length} tokens in {sum(map(len, tables))} blocks"
    return f"{result!r:.120}"


def settled(subject: VllmSubject, message: dict[str, Any]) -> dict[str, Any]:
    """The operation: what is known of the function ``name``, of which ``texts`` has another."""
    try:
        versions = Versions(subject, message["texts"])
    except Exception as error:  # a user's text does what it does
        why = f"the other version cannot be imported beside it: {type(error).__name__}: {error}"
        return {"status": Status.INCONCLUSIVE, "detail": why}
    try:
        known = versions.settle(message["module"], message["name"], message["seconds"])
    except Unsupported as error:
        known = Equivalence(Status.INCONCLUSIVE, str(error))
    except PathError as error:
        raise InternalError(str(error)) from error
    return {"status": known.status, "detail": known.detail}
