"""What was proved for all lengths in earlier runs, by digests of what it rests on.

They are those of `proofs.unbounded.reading`: of the functions themselves, and of what these call
and read. So releases whose functions are the same share a proof.
"""

import fcntl
import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from hitproof.vllm_integration.sandbox.protocol import TEXT

_MOST = 64
"""How many digests of one statement are kept: more than there are releases."""


class Proved:
    """Digests of what is proved, by the name of the statement, in a file if one is named.

    Those of another version of hitproof count as none. So does a file that cannot be read; it is
    written anew. What cannot be written is forgotten.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._digests = self._read()
        self._new: dict[str, list[str]] = {}

    def of(self, name: str) -> list[str]:
        """The digests under which the statement of that name is proved, the latest last."""
        return self._digests.get(name, [])

    def add(self, name: str, digests: Iterable[str]) -> None:
        """The statement of that name is proved under these, too."""
        for known in (self._digests, self._new):
            known[name] = _latest(known.get(name, []), digests)

    def keep(self) -> None:
        """Add to the file what was proved, and keep what other processes have written meanwhile."""
        if self._file is None or not self._new:
            return
        with suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with self._file.with_suffix(".lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)  # ends with this process, however it ends
                digests = self._read()
                for name, new in self._new.items():
                    digests[name] = _latest(digests.get(name, []), new)
                written = self._file.with_suffix(f".{os.getpid()}")
                kept = {"text": TEXT, "digests": digests}
                written.write_text(json.dumps(kept), encoding="utf-8")
                written.replace(self._file)

    def _read(self) -> dict[str, list[str]]:
        with suppress(OSError, KeyError, ValueError, TypeError, AttributeError, RecursionError):
            kept = {} if self._file is None else json.loads(self._file.read_bytes())
            if kept and kept["text"] == TEXT:
                return _told(kept["digests"])
        return {}


def _told(digests: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
    return {name: _latest([], map(str, each)) for name, each in digests.items()}


def _latest(known: Iterable[str], digests: Iterable[str]) -> list[str]:
    """The latest of them, each once, those that were added last at the end."""
    new = dict.fromkeys(digests)
    return [*(each for each in known if each not in new), *new][-_MOST:]
