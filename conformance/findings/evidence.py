"""Evidence: the concrete cases that checks show their divergences with."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.scope.configurations import Configuration
from hitproof.conformance.scope.layouts import Layout, judged_from_json
from hitproof.conformance.subject.subjects import Prompt


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
        for_connector: whether the lookup is one for a KV connector that loads Mamba states.
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
    for_connector: bool = False

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
