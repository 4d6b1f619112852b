"""One theorem for each claim of the spec, for all sizes and positions, without bounds.

Statements call the spec's own functions; they add only the unknowns, the hypotheses and, where
something exists, a witness for it. Names of unknowns: positions and windows are in tokens,
``block``, ``boundary``, ``segment`` and ``tail`` in blocks, ``count`` and ``other`` in segments;
``block_size``, ``window`` and ``chunk`` are in tokens.
"""

import tomllib
from pathlib import Path

from hitproof.proofs import (
    admission,
    attention,
    connector,
    eviction,
    fine,
    joint,
    lookup,
    masks,
    need,
    pool,
    releases,
    retention,
    sharing,
    tiers,
)
from hitproof.proofs.agreement import theorems as agreement
from hitproof.proofs.obligation import Theorem

COVERS: dict[str, str] = tomllib.loads(
    (Path(__file__).parent / "covers.toml").read_text(encoding="utf-8")
)
"""What of each claim its theorem proves, in words, by the name of the claim."""


_MODULES = (
    attention,
    need,
    lookup,
    joint,
    connector,
    masks,
    retention,
    releases,
    agreement,
    fine,
    sharing,
    pool,
    eviction,
    admission,
    tiers,
)

THEOREMS: dict[str, Theorem] = {
    name: Theorem(name, obligations, COVERS[name])
    for module in _MODULES
    for name, obligations in module.OBLIGATIONS.items()
}
"""Every theorem, by the name of its claim."""
