"""What was proved for all lengths in earlier runs, by digests of what it rests on.

They are those of `proofs.unbounded.reading`: of the functions themselves, and of what these call
and read. So releases whose functions are the same share a proof.
"""

import json
import os
from contextlib import suppress
from pathlib import Path

from hitproof.vllm_integration.sandbox.protocol import TEXT


class Proved:
    """Digests of what is proved, in a file if one is named.

    Those of another version of hitproof count as none, like a file that cannot be read. What cannot
    be written is forgotten.

    Attributes:
        digests: the digests.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self.digests: set[str] = set()
        with suppress(OSError, KeyError, ValueError, TypeError):
            kept = {} if file is None else json.loads(file.read_bytes())
            if kept and kept["text"] == TEXT:
                self.digests.update(map(str, kept["digests"]))

    def keep(self) -> None:
        """Write them."""
        if self._file is None:
            return
        with suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            written = self._file.with_suffix(f".{os.getpid()}")
            kept = {"text": TEXT, "digests": sorted(self.digests)}
            written.write_text(json.dumps(kept), encoding="utf-8")
            written.replace(self._file)
