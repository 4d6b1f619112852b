"""What the gate judges, as a value."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hitproof.conformance.picking import picked

INSTALLED = "installed"
"""The target that is the vllm package of the chosen interpreter."""

UNPACKED = ("vllm", "tests", "PKG-INFO")
"""What is kept of a release or commit."""


class TargetError(Exception):
    """The target cannot be resolved; the message is one sentence that names the remedy."""


def check_aliases(aliases: Iterable[str]) -> tuple[str, ...]:
    """The aliases, each of them ``new=old``. Raises `TargetError`."""
    checked = tuple(aliases)
    for text in checked:
        if not all(part.isidentifier() for part in text.split("=")) or text.count("=") != 1:
            raise TargetError(
                f"{text!r} is not an alias; write the new and the old name as NEW=OLD"
            )
    return checked


@dataclass(frozen=True)
class Target:
    """What the gate judges.

    Attributes:
        name: as the user wrote it.
        root: the directory to put first on ``sys.path``, absolute; None for ``installed``.
        version: the release number; of a path or commit that of the release that it descends
            from; None where nothing says it (take it for newer than any release).
        managers: classes that are built instead of vLLM's managers, each as ``module:Class``.
        coordinators: classes that are built instead of vLLM's coordinators.
        aliases: new names of functions, attributes and parameters, each as ``new=old``.
        inferred: what says which release that is, if the name does not.
    """

    name: str
    root: Path | None
    version: str | None
    managers: tuple[str, ...] = ()
    coordinators: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    inferred: str = field(default="", compare=False)

    @property
    def label(self) -> str:
        """The name, and what is built instead of vLLM's own classes."""
        classes = (*self.managers, *self.coordinators)
        return f"{self.name} with {', '.join(classes)}" if classes else self.name

    def as_json(self) -> dict[str, Any]:
        """As reports show it."""
        names = "name", "version", "managers", "coordinators", "aliases"
        return picked(self, *names, version_from="inferred")

    @property
    def is_release(self) -> bool:
        """Whether the target is named by its release."""
        return self.version is not None and not self.inferred

    def mentions(self, name: str) -> bool:
        """Whether the name occurs in the target's managers."""
        if self.root is None:
            return True
        files = (self.root / "vllm" / "v1" / "core").glob("*.py")
        word = re.compile(rf"\b{name}\b")
        return any(word.search(file.read_text(encoding="utf-8")) for file in files)

    def has(self, text: str) -> bool:
        """Whether the module of a ``module:Class`` is in the target's own tree."""
        path = Path(*text.partition(":")[0].split("."))
        return self.root is not None and any(
            (self.root / file).is_file() for file in (f"{path}.py", path / "__init__.py")
        )
