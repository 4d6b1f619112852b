"""Evidence: the concrete cases that checks show their divergences with, one class for each kind.

All evidence has been replayed on the subject. As JSON each kind has the same keys, those that it
does not need with the values of `_UNUSED`, and ``type`` says which kind it is.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar

from pydantic import TypeAdapter

from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.histories.json_format import as_json as history_as_json
from hitproof.conformance.histories.json_format import read as read_history
from hitproof.conformance.histories.schema import History
from hitproof.conformance.scope.configurations import Configuration
from hitproof.conformance.scope.layouts import Layout, judged_from_json
from hitproof.conformance.subject.hashing import Prompt

_T = TypeVar("_T")
_E = TypeVar("_E", bound="Evidence")


@dataclass(frozen=True)
class Evidence(ABC):
    """One concrete case of a divergence; its subclasses are the kinds.

    Attributes:
        signature: what it is a case of.
        configuration: the configuration, or the layout of several groups.
        spec: what the spec says, in words.
        actual: what the subject did.
    """

    signature: Signature
    configuration: Configuration | Layout
    spec: str
    actual: str

    def as_json(self) -> dict[str, Any]:
        """The evidence as JSON; `from_json` reads it."""
        own = {key.key: key.write(getattr(self, name)) for name, key in _own(type(self)).items()}
        return {
            "type": _NAMES[type(self)],
            "signature": self.signature.as_json(),
            "configuration": self.configuration.as_json(),
            "spec": self.spec,
            "actual": self.actual,
            **_UNUSED,
            **_MARKS.get(type(self), {}),
            **own,
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> "Evidence":
        """Inverse of `as_json`; raises KeyError, ValueError or TypeError on anything else."""
        shared = {
            "signature": Signature.from_json(data["signature"]),
            "configuration": judged_from_json(data["configuration"]),
            "spec": data["spec"],
            "actual": data["actual"],
        }
        values = {**_UNUSED, **data}
        of = _BY_NAME[data["type"]]
        own = _own(of)
        keys = {key.key for key in own.values()}
        if unknown := values.keys() - _UNUSED.keys() - shared.keys() - keys - {"type"}:
            raise TypeError(f"evidence has no {', '.join(sorted(unknown))}")
        several = issubclass(of, LookupEvidence | TierMaskEvidence)
        if isinstance(shared["configuration"], Layout) and not several:
            raise TypeError(f"{_NAMES[of]} evidence is of one group")
        return of(**shared, **{name: key.read(values[key.key]) for name, key in own.items()})

    @property
    def size(self) -> tuple[Any, ...]:
        """Orders the evidence of one signature: by configuration, then by the case."""
        return self.configuration, *self._size

    @property
    @abstractmethod
    def _size(self) -> tuple[Any, ...]:
        """Orders the cases of one configuration."""

    @property
    def entry(self) -> str:
        """The entry point that it judges: see `conformance.subject.subjects.Subject.source`."""
        return f"mask {self.signature.kind}"


@dataclass(frozen=True)
class LookupEvidence(Evidence):
    """A lookup on a cache state.

    Attributes:
        cached: for each set of groups that are looked up together, the cached blocks.
        max_length: how many tokens it may serve.
        spec_hit: the expected hit, in tokens.
        actual_hit: the hit that was served; None where the lookup raises.
    """

    cached: tuple[frozenset[int], ...]
    max_length: int
    spec_hit: int
    actual_hit: int | None

    @property
    def _size(self) -> tuple[Any, ...]:
        return self.max_length, sum(map(len, self.cached)), list(map(sorted, self.cached))

    @property
    def entry(self) -> str:
        """The lookup of a kind of group, or of several groups."""
        several = isinstance(self.configuration, Layout)
        return f"lookup {'several' if several else self.signature.kind}"


@dataclass(frozen=True)
class ConnectorEvidence(LookupEvidence):
    """A lookup for a KV connector that loads Mamba states; the hits are local prefixes."""

    @property
    def entry(self) -> str:
        """The lookup for connectors."""
        return "lookup connector"


@dataclass(frozen=True)
class TierLookupEvidence(LookupEvidence):
    """A lookup in a tier; ``cached`` is what is stored."""

    @property
    def entry(self) -> str:
        """The lookup of the tier."""
        return f"lookup {_tier(self.configuration)}"


@dataclass(frozen=True)
class TierLocalEvidence(TierLookupEvidence):
    """A lookup in a tier for a request of which the prefix cache has ``local`` tokens."""

    local: int


LATER = "b"
"""The name of the later request in the history of an `AgreementEvidence`."""


@dataclass(frozen=True)
class AgreementEvidence(LookupEvidence):
    """A later request that hits other than what an earlier one registered allows.

    ``cached`` is what dense caching would have of it, as far as that decides on the hit.

    Attributes:
        history: what was computed and evicted, and the lookup of the request `LATER`.
        or_more: whether a longer hit would do.
    """

    history: History
    or_more: bool

    @property
    def _size(self) -> tuple[Any, ...]:
        steps = self.history.steps
        return len(steps), sum(len(r.token_ids) for r in self.history.requests.values()), str(steps)


@dataclass(frozen=True)
class FineLookupEvidence(Evidence):
    """A lookup whose hit may end on any hash block.

    Attributes:
        entered: the hash blocks that a block was entered under.
        max_length: how many tokens it may serve.
        spec_hit: the expected hit, in tokens.
        actual_hit: the hit that was served; None where the lookup raises.
    """

    configuration: Configuration
    entered: frozenset[int]
    max_length: int
    spec_hit: int
    actual_hit: int | None

    @property
    def _size(self) -> tuple[Any, ...]:
        return self.max_length, len(self.entered), sorted(self.entered)

    @property
    def entry(self) -> str:
        """The lookup of a kind of group."""
        return f"lookup {self.signature.kind}"


@dataclass(frozen=True)
class MaskEvidence(Evidence):
    """What the producer registers of a request under dense retention.

    Attributes:
        chunks: the token counts at which blocks were registered.
        registered: the blocks that were.
        block: the block that is registered, or not, against the spec; None where it raises.
    """

    configuration: Configuration
    chunks: tuple[int, ...]
    registered: frozenset[int]
    block: int | None

    @property
    def _size(self) -> tuple[Any, ...]:
        return len(self.registered), len(self.chunks), sorted(self.registered), self.chunks


@dataclass(frozen=True)
class RetentionEvidence(Evidence):
    """What the producer keeps of a prompt under sparse retention.

    Attributes:
        num_tokens: the tokens of the prompt.
        interval: the retention interval in tokens.
        registered: the blocks that were registered.
        block: the block that is registered, or not, against the spec; None where it raises.
        decisive_hit: the hit, in tokens, that decides on the block.
    """

    configuration: Configuration
    num_tokens: int
    interval: int
    registered: frozenset[int]
    block: int | None
    decisive_hit: int

    @property
    def _size(self) -> tuple[Any, ...]:
        return len(self.registered), sorted(self.registered), self.num_tokens


@dataclass(frozen=True)
class SharedPrefixEvidence(Evidence):
    """Three prompts that share a prefix and nothing else, served one after another.

    Attributes:
        num_tokens: the tokens of each prompt.
        shared: the tokens that they share.
        interval: the retention interval in tokens; None for dense retention.
        spec_hit: the expected hit of the third prompt, in tokens.
        actual_hit: the hit that it was served; None where the subject raises.
    """

    configuration: Configuration
    num_tokens: int
    shared: int
    interval: int | None
    spec_hit: int
    actual_hit: int | None

    @property
    def _size(self) -> tuple[Any, ...]:
        return (self.num_tokens,)


STORE, LOOKUP, LOAD = "store", "lookup", "load"
"""The masks of a tier."""


@dataclass(frozen=True)
class TierMaskEvidence(Evidence):
    """What a tier stores, asks for or loads of one group.

    Attributes:
        mask: which of these: `STORE`, `LOOKUP` or `LOAD`.
        start: where the step starts that fills what is stored, or where the local part ends of a
            hit that is loaded, in tokens; else 0.
        end: where it ends, or how long the request or the hit is, in tokens.
        group: the group, an index.
        marked: its blocks that are stored, asked for or loaded.
        block: the block that is, or is not, against the spec; None where it raises.
    """

    configuration: Layout
    mask: str
    start: int
    end: int
    group: int
    marked: frozenset[int]
    block: int | None

    @property
    def _size(self) -> tuple[Any, ...]:
        return self.end, self.end - self.start, len(self.marked), self.group, sorted(self.marked)

    @property
    def entry(self) -> str:
        """The mask of the tier."""
        what = {"store": "stored", "lookup": "asked", "load": "loaded"}[self.mask]
        return f"{what} {_tier(self.configuration)}"


@dataclass(frozen=True)
class StepsEvidence(Evidence):
    """What was done step by step; the configuration does not matter to it.

    Attributes:
        steps: what was done, one step a line.
    """

    configuration: Configuration
    steps: tuple[str, ...]

    @property
    def _size(self) -> tuple[Any, ...]:
        return len(self.steps), self.steps

    @property
    def entry(self) -> str:
        """The block pool, or block hashes."""
        return self.signature.kind


@dataclass(frozen=True)
class PoolEvidence(StepsEvidence):
    """Operations on a block pool.

    Attributes:
        picture: what they led to, one line after the other.
    """

    picture: tuple[str, ...]


@dataclass(frozen=True)
class AdmissionEvidence(StepsEvidence):
    """Steps of one request that a manager grants or refuses."""

    @property
    def entry(self) -> str:
        """Where slots are granted."""
        return "admission"


@dataclass(frozen=True)
class HashEvidence(StepsEvidence):
    """Two prompts whose block hashes are wrongly equal, or wrongly different.

    Attributes:
        prompts: the prompts.
    """

    prompts: tuple[Prompt, Prompt]


_UNUSED: Mapping[str, Any] = {
    "cached": (),
    "max_length": None,
    "chunks": (),
    "spec_hit": 0,
    "actual_hit": None,
    "retention": None,
    "steps": (),
    "picture": (),
    "shared": None,
    "fine": False,
    "block": None,
    "prompts": (),
    "for_connector": False,
}
"""What a kind of evidence has as JSON in the place of what it does not need."""


@dataclass(frozen=True)
class _Key:
    """Where a field is in the JSON, and how it is written and read."""

    key: str
    write: Callable[[Any], Any] = lambda value: value
    read: Callable[[Any], Any] = lambda value: value


_PROMPTS = TypeAdapter(tuple[Prompt, ...])


def _only(values: Iterable[_T]) -> _T:
    (value,) = values
    return value


def _prompt(prompt: Prompt) -> dict[str, Any]:
    names = "images", "embeddings", "num_generated", "is_token_ids"
    rare = {name for name in names if not getattr(prompt, name)}
    return {name: value for name, value in asdict(prompt).items() if name not in rare}


def _history(data: Any) -> History:
    return read_history(json.dumps(data))


_BLOCKS = _Key("cached", lambda blocks: [sorted(blocks)], lambda sets: frozenset(_only(sets)))
_KEYS = {
    "cached": _Key(
        "cached", lambda sets: [*map(sorted, sets)], lambda sets: (*map(frozenset, sets),)
    ),
    "entered": _BLOCKS,
    "registered": _BLOCKS,
    "marked": _BLOCKS,
    "num_tokens": _Key("chunks", lambda count: (count,), _only),
    "interval": _Key("retention"),
    "decisive_hit": _Key("spec_hit"),
    "prompts": _Key("prompts", lambda prompts: (*map(_prompt, prompts),), _PROMPTS.validate_python),
    "history": _Key("history", history_as_json, _history),
    **{name: _Key(name, read=tuple) for name in ("chunks", "steps", "picture")},
}
"""The fields that JSON has under another name, or in another form."""

_NAMES: Mapping[type[Evidence], str] = {
    LookupEvidence: "lookup",
    ConnectorEvidence: "connector lookup",
    AgreementEvidence: "agreement",
    FineLookupEvidence: "fine-grained lookup",
    MaskEvidence: "mask",
    RetentionEvidence: "retention",
    SharedPrefixEvidence: "shared prefix",
    TierLookupEvidence: "tier lookup",
    TierLocalEvidence: "tier lookup past a local hit",
    TierMaskEvidence: "tier mask",
    PoolEvidence: "pool",
    AdmissionEvidence: "admission",
    HashEvidence: "hashes",
}
_BY_NAME = {name: of for of, name in _NAMES.items()}
_MARKS: Mapping[type[Evidence], Mapping[str, Any]] = {
    ConnectorEvidence: {"for_connector": True},
    FineLookupEvidence: {"fine": True},
}
"""What the JSON of a kind always has."""


def _own(of: type[Evidence]) -> dict[str, _Key]:
    """The keys of the fields that a kind has beside those of all evidence."""
    shared = {each.name for each in fields(Evidence)}
    names = (each.name for each in fields(of) if each.name not in shared)
    return {name: _KEYS.get(name, _Key(name)) for name in names}


def _tier(judged: Configuration | Layout) -> str:
    return (isinstance(judged, Layout) and judged.tier) or "tier"


def smallest(evidence: Iterable[_E]) -> dict[Signature, _E]:
    """The smallest evidence for each signature."""
    best: dict[Signature, _E] = {}
    for item in evidence:
        known = best.get(item.signature)
        if known is None or item.size < known.size:
            best[item.signature] = item
    return best
