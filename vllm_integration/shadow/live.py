"""The shadow in a live engine: a plugin of vLLM (``vllm.general_plugins``), off unless asked for.

    HITPROOF_SHADOW=1              judge every ``KVCacheManager`` of the process
    HITPROOF_SHADOW_SAMPLE=0.1     only this share of the requests, by their ids, so whole lives
    HITPROOF_SHADOW_FILE=FILE      append findings as JSON lines, one for each signature
    HITPROOF_SHADOW_RECORD=FILE    write the managers' lives when the process ends, to FILE.PID
    HITPROOF_SHADOW_POLICY=N=V,... judge by these values of policies, not by those of the release
    HITPROOF_SHADOW_ALIAS=NEW=OLD,... take NEW for what was named OLD
    HITPROOF_SHADOW_RELEASE=0.33.0 compare vLLM with this release, not the one it descends from

What the managers return stays as it is, and no error of ours reaches them: after ten the shadow
switches itself off and says so in vLLM's log. So does a setting that cannot be used.

Memory is bounded. Besides a few numbers for each request that is waiting or running there are the
answers of at most 256 lookups, until their requests are admitted, and one finding for each
signature; of a record, for each manager, 100,000 calls and 1,000,000 tokens, about 100 MB: what
comes later is left out. The invariants of a pool are audited within a tenth of the manager's own
time, and only in pools of at most 10,000 blocks, since an audit looks at all of them at once.
"""

import atexit
import json
import logging
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

_LOGGER = logging.getLogger("vllm.hitproof")
_BUCKETS = 10_000
_running: list["_Live"] = []


def register() -> None:
    """Start the shadow in this process when the environment asks for it; never raises.

    vLLM loads its plugins in every process, and may do so more than once.
    """
    if os.environ.get("HITPROOF_SHADOW") != "1" or _running:
        return
    try:
        _running.append(_Live())
    except Exception as error:
        _LOGGER.warning("hitproof: no shadow in this process: %s", error)


def stop() -> None:
    """End the shadow of this process, if there is one, and write what it saw."""
    while _running:
        _running.pop().close()


class _Live:
    """The shadow of one process."""

    def __init__(self) -> None:
        from hitproof.vllm_integration.shadow.session import Session

        environment = os.environ
        file, record = (environment.get(f"HITPROOF_SHADOW_{n}") for n in ("FILE", "RECORD"))
        policies, aliases = (environment.get(f"HITPROOF_SHADOW_{n}") for n in ("POLICY", "ALIAS"))
        self._file = Path(file) if file else None
        self._session = Session(
            policies=policies.split(",") if policies else (),
            record=Path(f"{record}.{os.getpid()}") if record else None,
            release=environment.get("HITPROOF_SHADOW_RELEASE"),
            aliases=aliases.split(",") if aliases else (),
            thorough=False,
            judges=_sample(environment.get("HITPROOF_SHADOW_SAMPLE", "1")),
            on_off=self._gives_up,
        )
        self._session.report.on_first = self._found
        _LOGGER.info("hitproof: the prefix cache of vLLM %s is judged", self._session.version)
        atexit.register(self.close)

    def close(self) -> None:
        """Take the hooks off and tell what was seen."""
        atexit.unregister(self.close)
        try:
            self._session.close()
            report = self._session.report
            if report.managers:
                self._write({"summary": report.as_json()})
                for line in self._session.lines():
                    _LOGGER.info("hitproof: %s", line)
        except Exception as error:
            _LOGGER.warning("hitproof: the shadow ends without its summary: %r", error)

    def _found(self, finding: Any) -> None:
        """The first finding of its signature."""
        level = logging.INFO if finding.known else logging.WARNING
        _LOGGER.log(level, "hitproof: %s%s", "known: " if finding.known else "", finding.text())
        self._write(finding.as_json())

    def _write(self, data: Any) -> None:
        if self._file is None:
            return
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"pid": os.getpid(), **data}) + "\n")

    def _gives_up(self, why: str) -> None:
        _LOGGER.error("hitproof: the shadow switches itself off, please report it: %s", why)


def _sample(share: str) -> Callable[[str], bool]:
    """Which requests are judged: always the same ones, about ``share`` of them."""
    try:
        number = float(share)
    except ValueError:
        number = -1.0
    if not 0 < number <= 1:
        raise ValueError(
            f"HITPROOF_SHADOW_SAMPLE is a share of the lookups such as 0.1, not {share!r}"
        )
    limit = max(1, round(number * _BUCKETS))
    return lambda request_id: zlib.crc32(request_id.encode()) % _BUCKETS < limit
