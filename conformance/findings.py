"""Findings: what diverged, in the form that people, the ledger and other tools read."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from conformance.configurations import Configuration, LookedUp
from conformance.demonstration import Demonstration
from conformance.layouts import Layout, judged_from_json
from conformance.subjects import Prompt
from spec.claims import CLAIMS, Divergence
from spec.groups import GroupKind
from spec.hits import required_run
from spec.mask import in_mask, next_boundary

SEVERITY = tuple(Divergence)


@dataclass(frozen=True)
class Signature:
    """The structure of a divergence: findings with equal signatures have one cause.

    Attributes:
        claim: the claim that is broken.
        divergence: unsound, crash, lost hit, waste.
        kind: the group's kind, the kinds of several, joined by " + ", or what is judged if that is
            no group.
        eagle: whether the group, or one of several, drops a lookahead block; for what is retained
            of Mamba, whether the full attention beside it does.
        pattern: how it is broken, in words that do not depend on sizes.
    """

    claim: str
    divergence: str
    kind: str
    eagle: bool
    pattern: str

    def as_json(self) -> dict[str, Any]:
        """The signature as JSON."""
        return asdict(self)

    @property
    def severity(self) -> tuple[int, str, str]:
        """Sorts the most severe first."""
        return SEVERITY.index(Divergence(self.divergence)), self.claim, self.pattern


@dataclass(frozen=True)
class Evidence:
    """One concrete case of a divergence, replayed on the subject.

    Attributes:
        signature: what it is a case of.
        configuration: the configuration, or the layout of several groups.
        cached: for each set of groups that are looked up together, for a lookup, the cached
            blocks; for a mask, the registered ones.
        max_length: for a lookup, how many tokens it may serve; None for a mask.
        chunks: for a mask, the token counts at which blocks were registered.
        spec: what the spec says, as a hit length or the blocks.
        actual: what the subject did.
        spec_hit: the hit, in tokens, that the spec promises.
        actual_hit: the hit that the subject's lookup served; None for a mask, or a crash.
        retention: the retention interval in tokens; None for dense retention.
        steps: where no lookup or mask is judged, what was done, one step a line.
        picture: what the steps led to.
        shared: how many tokens three prompts share, when they show it; None otherwise.
        fine: whether hits may end on any hash block; then ``cached`` has the hash blocks that a
            block was entered under.
        block: for a mask, the block that is registered, or not, against the spec.
        prompts: two prompts whose block hashes are wrongly equal or different.
    """

    signature: Signature
    configuration: Configuration | Layout
    cached: tuple[frozenset[int], ...]
    max_length: int | None
    chunks: tuple[int, ...]
    spec: str
    actual: str
    spec_hit: int = 0
    actual_hit: int | None = None
    retention: int | None = None
    steps: tuple[str, ...] = ()
    picture: tuple[str, ...] = ()
    shared: int | None = None
    fine: bool = False
    block: int | None = None
    prompts: tuple[Prompt, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The evidence as JSON; `from_json` reads it."""
        return {
            **asdict(self),
            "configuration": self.configuration.as_json(),
            "cached": [sorted(blocks) for blocks in self.cached],
        }

    @staticmethod
    def from_json(data: dict[str, Any]) -> "Evidence":
        """Inverse of `as_json`; raises KeyError, ValueError or TypeError on anything else."""
        return Evidence(
            **{
                **data,
                "signature": Signature(**data["signature"]),
                "configuration": judged_from_json(data["configuration"]),
                "cached": tuple(map(frozenset, data["cached"])),
                "chunks": tuple(data["chunks"]),
                "steps": tuple(data["steps"]),
                "picture": tuple(data["picture"]),
                "prompts": tuple(
                    Prompt(tuple(p["tokens"]), p["salt"], tuple(p["adapter"]))
                    for p in data["prompts"]
                ),
            }
        )

    @property
    def size(self) -> tuple[Any, ...]:
        """Smaller evidence first: groups, blocks, sizes, then what is cached."""
        counts = sum(map(len, self.cached)), len(self.chunks), len(self.steps)
        order = (list(map(sorted, self.cached)), self.chunks, self.steps)
        return self.configuration, self.max_length or 0, counts, order


def smallest(evidence: Iterable[Evidence]) -> dict[Signature, Evidence]:
    """The smallest evidence for each signature."""
    best: dict[Signature, Evidence] = {}
    for item in evidence:
        known = best.get(item.signature)
        if known is None or item.size < known.size:
            best[item.signature] = item
    return best


@dataclass(frozen=True)
class Finding:
    """A divergence with its smallest evidence, ready to show.

    Attributes:
        signature: see `Signature`.
        sentence: the claim's sentence.
        given: the configuration and the cache state, one fact a line.
        spec: what the spec says.
        actual: what the subject did.
        strip: a picture of the blocks.
        source: file:line of the code that it judges.
        configuration: the configuration as JSON, ready for a ledger entry.
        demonstration: the finding on a whole manager.
    """

    signature: Signature
    sentence: str
    given: tuple[str, ...]
    spec: str
    actual: str
    strip: str
    source: str
    configuration: dict[str, Any]
    demonstration: Demonstration = field(default_factory=Demonstration)

    def as_json(self) -> dict[str, Any]:
        """The finding as JSON, as `hitproof check --format json` prints it."""
        return {
            "claim": self.signature.claim,
            "sentence": self.sentence,
            "class": self.signature.divergence,
            "signature": self.signature.as_json(),
            "given": list(self.given),
            "spec": self.spec,
            "actual": self.actual,
            "strip": self.strip.splitlines(),
            "source": self.source,
            "configuration": self.configuration,
            **self.demonstration.as_json(),
        }


def finding(evidence: Evidence, source: str, demonstration: Demonstration | None = None) -> Finding:
    """The finding that ``evidence`` shows; ``source`` is the judged code, as file:line."""
    judged = evidence.configuration
    given = [judged.describe()]
    if evidence.steps:
        given = list(evidence.steps)
        strip = "\n".join(evidence.picture)
    elif evidence.shared is not None:
        assert isinstance(judged, Configuration)
        policy = "dense" if evidence.retention is None else f"interval {evidence.retention}"
        given.append(
            f"three prompts of {evidence.chunks[0]} tokens that share the first {evidence.shared}, "
            f"served one after another, retention {policy}"
        )
        strip = _hits_strip(evidence, judged)
    elif evidence.fine:
        assert isinstance(judged, Configuration)
        given.append(
            f"a lookup of at most {evidence.max_length} tokens that may end on any hash block of "
            f"{judged.hash_block_size} tokens; entered hash blocks: {_listed(evidence.cached[0])}"
        )
        strip = _lookup_strip(replace(evidence, configuration=judged.in_hash_units))
    elif evidence.max_length is not None:
        given += _given_lookup(evidence, judged, evidence.max_length)
        strip = _lookup_strip(evidence)
    else:
        assert isinstance(judged, Configuration)  # masks are of one group
        after = ", ".join(map(str, evidence.chunks))
        if evidence.retention is None:
            given.append(
                f"a request of {judged.num_blocks} blocks, registered after {after} tokens"
            )
            strip = _mask_strip(evidence, judged)
        else:
            given.append(f"a prompt of {after} tokens, retention interval {evidence.retention}")
            strip = _promise_strip(evidence, judged)
    return Finding(
        signature=evidence.signature,
        sentence=CLAIMS[evidence.signature.claim].sentence,
        given=tuple(given),
        spec=evidence.spec,
        actual=evidence.actual,
        strip=strip,
        source=source,
        configuration=judged.as_json(),
        demonstration=demonstration or Demonstration(),
    )


def _given_lookup(
    evidence: Evidence, judged: Configuration | Layout, max_length: int
) -> Iterator[str]:
    if isinstance(judged, Configuration):
        (blocks,) = evidence.cached
        yield f"a lookup of at most {max_length} tokens; cached blocks: {_listed(blocks)}"
        return
    yield f"a request of {max_length + 1} tokens, of which at most {max_length} may be served"
    for looked_up, blocks in zip(judged.looked_up, evidence.cached, strict=True):
        several = len(looked_up.group_ids) > 1
        whose = f"group{'s' if several else ''} {' and '.join(map(str, looked_up.group_ids))}"
        yield f"cached blocks of {whose}: {_listed(blocks)}"


def _listed(blocks: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(blocks))) or "none"


def block_role(of: Configuration | LookedUp, block: int, boundary: int) -> str:
    """What ``block`` is to a hit that ends at ``boundary`` (in blocks): a letter for strips.

    ``L`` lookahead, ``p`` prefix of full attention, ``t`` tail of a sliding window, ``c`` of the
    boundary's chunk, ``s`` state of Mamba, ``.`` none.
    """
    if block not in required_run(of.shape, boundary):
        return "."
    if block >= boundary:
        return "L"
    return _ROLES[of.group.kind]


_ROLES = {
    GroupKind.FULL_ATTENTION: "p",
    GroupKind.SLIDING_WINDOW: "t",
    GroupKind.CHUNKED_LOCAL: "c",
    GroupKind.MAMBA: "s",
}

_LEGEND = (
    "# block held   . not   p prefix   t tail   c chunk   s state   L lookahead   "
    "| hit ends   : boundary"
)

ROLES = {"L": "lookahead", "p": "prefix", "t": "tail", "c": "chunk", "s": "state"}
"""What the letters of `block_role` stand for."""


def _strip(
    of: Configuration | LookedUp,
    rows: Sequence[tuple[str, dict[int, str], int | None]],
    last: int,
) -> str:
    """Rows of one cell a block; each row may mark where a hit ends."""
    boundaries = range(0, last + 2, of.shape.segment)
    width = max(2, len(str(last)))
    lines = []
    for label, cells, end in rows:
        line = f"{label:<12}"
        for block in range(last + 1):
            mark = "|" if block == end else ":" if block in boundaries else " "
            line += f"{mark}{cells.get(block, ''):>{width}} "
        closing = "|" if last + 1 == end else ":" if last + 1 in boundaries else ""
        lines.append((line + closing).rstrip())
    return "\n".join(lines)


def _numbers(last: int) -> dict[int, str]:
    return {block: str(block) for block in range(last + 1)}


def _lookup_strip(evidence: Evidence) -> str:
    judged = evidence.configuration
    strips = []
    for looked_up, cached in zip(judged.looked_up, evidence.cached, strict=True):
        size = looked_up.group.block_size
        last = max(judged.bound(looked_up) - 1, 0)
        spec_end = evidence.spec_hit // size
        actual_end = None if evidence.actual_hit is None else evidence.actual_hit // size
        rows = [
            ("block", _numbers(last), None),
            ("cached", {b: "#" if b in cached else "." for b in range(last + 1)}, None),
            ("spec hit", _roles(looked_up, spec_end, last), spec_end),
            ("actual hit", _roles(looked_up, actual_end or 0, last), actual_end),
        ]
        if len(judged.looked_up) > 1:
            strips.append(f"group {', '.join(map(str, looked_up.group_ids))}")
        strips.append(_strip(looked_up, rows, last))
    return "\n".join([*strips, _LEGEND])


def _roles(looked_up: LookedUp, end: int, last: int) -> dict[int, str]:
    return {b: block_role(looked_up, b, end) for b in range(last + 1)} if end else {}


def _hits_strip(evidence: Evidence, configuration: Configuration) -> str:
    """The picture of two hits, when it is not known what is cached."""
    (looked_up,) = configuration.looked_up
    size = configuration.group.block_size
    ends = [evidence.spec_hit // size, (evidence.actual_hit or 0) // size]
    last = max(*ends, 1)
    rows = [
        (label, _roles(looked_up, end, last), end)
        for label, end in zip(("spec hit", "actual hit"), ends, strict=True)
    ]
    strip = _strip(configuration, [("block", _numbers(last), None), *rows], last)
    return f"{strip}\n{_LEGEND}"


def _mask_strip(evidence: Evidence, configuration: Configuration) -> str:
    shape, last = configuration.shape, configuration.num_blocks - 1
    needed = {
        block: block_role(configuration, block, next_boundary(shape, block))
        if in_mask(shape, block)
        else "."
        for block in range(last + 1)
    }
    held = {block: "#" if block in evidence.cached[0] else "." for block in range(last + 1)}
    strip = _strip(
        configuration,
        [
            ("block", _numbers(last), None),
            ("reachable", needed, None),
            ("registered", held, None),
        ],
        last,
    )
    return f"{strip}\n{_LEGEND}"


def _promise_strip(evidence: Evidence, configuration: Configuration) -> str:
    last = max(configuration.num_blocks - 1, 0)
    end = evidence.spec_hit // configuration.group.block_size
    roles = {block: block_role(configuration, block, end) for block in range(last + 1)}
    held = {block: "#" if block in evidence.cached[0] else "." for block in range(last + 1)}
    strip = _strip(
        configuration,
        [("block", _numbers(last), None), ("hit needs", roles, end), ("registered", held, None)],
        last,
    )
    return f"{strip}\n{_LEGEND}"
