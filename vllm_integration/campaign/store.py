"""The store: a directory of JSON lines, which a later run resumes and merges.

``parts/`` has a file for each run, which only that run writes, a line for each job as soon as it
ends. Parts of other directories can be copied there. ``log/`` has what differs from run to run:
when each job ended, where, and how long it took. ``results.jsonl`` is all of a campaign in the
order of the jobs' names, the same bytes however it was run.
"""

import errno
import json
import secrets
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from hitproof.conformance.words import count
from hitproof.vllm_integration.campaign.jobs import Job, Result

MERGED = "results.jsonl"


class StoreError(Exception):
    """The directory cannot be used; the message is one sentence that names the remedy."""


@dataclass(frozen=True)
class Ended:
    """What differs from run to run.

    Attributes:
        name: the job's name.
        at: when it ended, in seconds since 1970.
        seconds: how long its worker took.
        worker: the process that ran it, with its machine.
    """

    name: str
    at: float
    seconds: float
    worker: str


class Store:
    """The results in a directory. Raises `StoreError`.

    Attributes:
        damaged: lines that cannot be read; their jobs are run again.
        differing: names of jobs that gave different results in two runs.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.damaged = 0
        self.differing: set[str] = set()
        self._results: dict[str, str] = {}
        self._part: IO[str] | None = None
        self._log: IO[str] | None = None
        self._run = secrets.token_hex(8)
        try:
            for name in ("parts", "log"):
                (directory / name).mkdir(parents=True, exist_ok=True)
            for file in sorted((directory / "parts").glob("*.jsonl")):
                self._read(file)
        except OSError as error:
            raise self._unusable(error) from error

    def __contains__(self, job: Job) -> bool:
        return job.name in self._results

    def __len__(self) -> int:
        return len(self._results)

    def result(self, job: Job) -> Result:
        """What the job gave."""
        found: Result = json.loads(self._results[job.name])
        return found

    def keep(self, job: Job, result: Result, ended: Ended) -> None:
        """Keep a result before the next one is waited for. Raises `StoreError`."""
        text = _text(result)
        try:
            if self._part is None or self._log is None:
                self._part, self._log = self._opened("parts"), self._opened("log")
            self._part.write(_text({"name": job.name, "result": result}) + "\n")
            self._part.flush()
            self._results[job.name] = text
            self._log.write(_text(asdict(ended)) + "\n")
            self._log.flush()
        except OSError as error:
            raise self._unusable(error) from error

    def log(self) -> list[Ended]:
        """When jobs ended, in that order; what cannot be read is left out."""
        found = []
        for file in sorted((self.directory / "log").glob("*.jsonl")):
            for raw in _lines(file):
                with suppress(TypeError):
                    found.append(Ended(**(raw or {})))
        return sorted(found, key=lambda ended: ended.at)

    def merge(self, jobs: Iterable[Job]) -> Path:
        """Write what these jobs gave, those that have ended, by name. Raises `StoreError`."""
        lines = {
            job.name: f'{{"name":"{job.name}","question":{_text(dict(job.question))},'
            f'"result":{self._results[job.name]}}}\n'
            for job in jobs
            if job in self
        }
        return self.write(MERGED, "".join(lines[name] for name in sorted(lines)))

    def write(self, path: str, text: str) -> Path:
        """Write a file below the directory, whole or not at all. Raises `StoreError`."""
        place = self.directory / path
        scratch = place.with_suffix(f".{self._run}")
        try:
            place.parent.mkdir(exist_ok=True)
            scratch.write_text(text, encoding="utf-8")
            scratch.replace(place)
        except OSError as error:
            with suppress(OSError):
                scratch.unlink(missing_ok=True)
            raise self._unusable(error) from error
        return place

    def close(self) -> None:
        """Close what is open."""
        for file in (self._part, self._log):
            if file is not None:
                with suppress(OSError):  # what was not written was not kept
                    file.close()

    def _opened(self, kind: str) -> IO[str]:
        return (self.directory / kind / f"{self._run}.jsonl").open("w", encoding="utf-8")

    def _read(self, file: Path) -> None:
        for raw in _lines(file):
            try:
                name, text = str(raw["name"]), _text(dict(raw["result"]))
            except (TypeError, KeyError, ValueError):
                self.damaged += 1
                continue
            if self._results.setdefault(name, text) != text:
                self.differing.add(name)
                self._results[name] = min(text, self._results[name])

    def _unusable(self, error: OSError) -> StoreError:
        again = f"{count(self, 'result')} of jobs are kept; run the same command again to resume"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return StoreError(f"the disk is full under {self.directory}; free space there; {again}")
        return StoreError(
            f"{self.directory} cannot be used ({error.strerror or error}); name another directory "
            f"with --out, or make it writable; {again}"
        )


def _lines(file: Path) -> Iterator[Any]:
    """What the lines of a file say; None for one that cannot be read."""
    with file.open("rb") as lines:
        for line in lines:
            try:
                yield json.loads(line)
            except ValueError:
                yield None


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
