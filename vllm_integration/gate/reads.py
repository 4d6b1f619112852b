"""What the target's code reads of its inputs, and what is known about each input.

An input that no check varies could change an answer unseen. So whatever the releases read is
reviewed in ``reads.toml``: it is varied by the configurations and histories, has several values
which must not matter, or is assumed to have one value, for a reason. A target that reads something
else is not judged in full.

    python -m hitproof.vllm_integration.gate.reads VERSION...

adds what these releases read to the file, to be reviewed there.
"""

import json
import sys
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from typing import Any

from hitproof.conformance.picking import picked
from hitproof.vllm_integration.bundled import READS
from hitproof.vllm_integration.sandbox.driver import Limits, Worker
from hitproof.vllm_integration.targets.resolving import resolve

_SECONDS = 600
_BYTES = 1 << 34


class ReadStanding(StrEnum):
    """Why something that is read cannot change an answer unseen."""

    VARIED = "varied"
    """Configurations and histories have several values, and each is judged by the spec."""
    IRRELEVANT = "irrelevant"
    """They have several values, and the expected answer is the same for all."""
    ASSUMED = "assumed"
    """Nothing varies it."""
    UNREVIEWED = "unreviewed"
    """Not reviewed yet."""


@dataclass(frozen=True)
class Read:
    """Something that is read.

    Attributes:
        name: ``class.attribute``; ``function(parameter)`` for a parameter left at its default.
        standing: see `ReadStanding`.
        reason: what varies it, or why it is assumed.
    """

    name: str
    standing: ReadStanding
    reason: str


@cache
def reviewed() -> dict[str, Read]:
    """What the releases read, by name."""
    entries = tomllib.loads(READS.read_text())
    return {
        name: Read(name, ReadStanding(entry["standing"]), entry["reason"])
        for name, entry in entries.items()
    }


@dataclass(frozen=True)
class ReadsReport:
    """What a target reads.

    Attributes:
        names: what it reads, has, or leaves at its default.
        varied: what variants differ in.
        accepted: what the user accepts unseen, with the reasons.
        cannot: why it cannot be found out, "" when it can.
    """

    names: Collection[str] = ()
    varied: Collection[str] = ()
    accepted: Mapping[str, str] = field(default_factory=dict)
    cannot: str = ""

    @property
    def unfamiliar(self) -> list[str]:
        """What has neither been reviewed nor is varied or accepted."""
        familiar = {*reviewed(), *self.varied, *self.accepted}
        return sorted(name for name in self.names if name not in familiar)

    @property
    def assumptions(self) -> list[Read]:
        """What nothing varies, and why that should be right."""
        accepted = (Read(n, ReadStanding.ASSUMED, why) for n, why in self.accepted.items())
        read = (reviewed()[name] for name in sorted(self.names) if name in reviewed())
        assumed = [each for each in read if each.standing is ReadStanding.ASSUMED]
        return [*assumed, *(each for each in accepted if each.name in self.names)]

    @property
    def detail(self) -> str:
        """Why the target cannot be judged in full, as one sentence; "" when it can."""
        if not self.unfamiliar:
            return self.cannot
        options = " ".join(f"--accept-read {json.dumps(name)}" for name in self.unfamiliar)
        return (
            f"the target reads {', '.join(self.unfamiliar)}, which no check varies; if that cannot "
            f"change an answer, allow it with {options}, or permanently with an [[accepted_read]] "
            "entry in the ledger"
        )

    def as_json(self) -> dict[str, Any]:
        """The report as JSON."""
        return {
            "names": sorted(self.names),
            "assumptions": [picked(each, "name", "reason") for each in self.assumptions],
            "accepted": [
                {"name": name, "reason": reason, "read": name in self.names}
                for name, reason in sorted(self.accepted.items())
            ],
            **picked(self, "unfamiliar", "detail"),
        }


def _read_by(version: str) -> set[str]:
    with Worker(resolve(version), Limits()) as worker:
        answer = worker.ask(_SECONDS, op="reads")
    return set(answer["reads"]) - set(answer["varied"])


def main(versions: Sequence[str]) -> None:
    """Add what releases read to ``reads.toml``."""
    known = dict(reviewed())
    for version in versions:
        for name in _read_by(version):
            known.setdefault(name, Read(name, ReadStanding.UNREVIEWED, f"read by {version}"))
    READS.write_text(text(list(known.values())))


def text(reads: Sequence[Read]) -> str:
    """The file, sorted by name."""
    entries = (
        f"[{json.dumps(read.name)}]\n"
        f"standing = {json.dumps(read.standing)}\nreason = {json.dumps(read.reason)}\n"
        for read in sorted(reads, key=lambda read: read.name)
    )
    return _HEAD + "\n".join(entries)


_HEAD = """\
# What the code of vLLM's releases reads of its inputs while it is judged; see gate/reads.py.

"""

if __name__ == "__main__":
    main(sys.argv[1:])
