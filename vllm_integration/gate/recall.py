"""Recall: questions about code that has not changed are answered as they were before.

An answer depends on what a worker is given and on what its process reads. The *context* has the
first: our own text, the interpreter, the environment that the worker gets, and what it is asked to
judge by (`judged_with`). A *tree* has the second: each file that was read to import a module, of
the target and of others, and what import finds in each directory in which it looked, so that a
new module that would come first is a change, too. If all of that is the same, so is the answer.

What failed or was left open is not kept, nor anything of a run during which a file has changed.
"""

import hashlib
import json
import os
import platform
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hitproof.conformance.words import count
from hitproof.spec.claims import Status
from hitproof.vllm_integration.gate.store import Store
from hitproof.vllm_integration.gate.trees import Changed, Digests
from hitproof.vllm_integration.sandbox.driver import (
    Answers,
    EnvironmentFailure,
    Imported,
    WorkerGone,
    Workers,
    judged_with,
)
from hitproof.vllm_integration.sandbox.processes import MARK, environment
from hitproof.vllm_integration.targets.target import Target

_KEPT: Mapping[str, Callable[[dict[str, Any]], bool]] = {
    "policies": lambda answer: not answer["detail"],
    "reads": lambda answer: bool(answer["reads"]),
    "check": lambda answer: Status.INCONCLUSIVE not in answer["statuses"].values(),
    "replay": lambda answer: "cannot" not in answer,
    "finding": lambda answer: answer["finding"] is not None,
}
"""The operations whose answers are kept, and which answers."""
_ROOT = r"\u0000root"
"""What stands for the tree's directory in answers that are kept, as JSON has it."""


@dataclass(frozen=True)
class Reused:
    """What of a report was answered before.

    Attributes:
        answers: answers that were kept.
        of: all answers.
        first: when the first of them was made, in seconds since 1970.
        last: when the last of them was.
    """

    answers: int
    of: int
    first: float
    last: float

    @property
    def whole(self) -> bool:
        """Whether nothing was judged anew."""
        return self.answers == self.of

    def describe(self) -> str:
        """What was not judged anew, and when it was judged."""
        first, last = _minute(self.first), _minute(self.last)
        when = first if first == last else f"{first} to {last}"
        return f"reused: {self.answers} of {count(self.of, 'answer')}, made {when}"

    def as_json(self) -> dict[str, Any]:
        """The same as JSON, with times in ISO 8601."""
        first, last = (datetime.fromtimestamp(t, UTC) for t in (self.first, self.last))
        return {
            "answers": self.answers,
            "of": self.of,
            "first_made": first.isoformat(timespec="seconds"),
            "last_made": last.isoformat(timespec="seconds"),
        }


def _minute(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M UTC")


class Recall:
    """What the store has of one target, for one run.

    `keep` is for the end of the run.
    """

    def __init__(
        self, store: Store, target: Target, python: str, memory: int, policies: Mapping[str, str]
    ) -> None:
        self._store = store
        self._begun = time.time()
        self._context = _context(target, python, memory, policies)
        self._digests = Digests(target.root)
        self._imported = Imported()
        self._tree = self._same()
        self._lock = threading.Lock()
        self._asked: set[bytes] = set()
        self._new: dict[bytes, str] = {}
        self._root = None if target.root is None else json.dumps(str(target.root))[1:-1]
        self._made: list[float] = []

    @property
    def knows(self) -> bool:
        """Whether the target was judged as it is."""
        return self._tree is not None

    @property
    def reused(self) -> Reused | None:
        """What was not judged anew so far, if anything."""
        made = self._made
        return Reused(len(made), len(self._asked), min(made), max(made)) if made else None

    @property
    def seconds(self) -> float | None:
        """How long the same took when it was judged; None unless nothing was judged anew."""
        reused = self.reused
        if self._tree is None or reused is None or not reused.whole:
            return None
        return self._store.seconds(self._tree, self._questions)

    def answer(self, message: Mapping[str, Any]) -> dict[str, Any] | None:
        """The answer to a question, if it is kept."""
        question, kept = _question(message), None
        if self._tree is not None and message["op"] in _KEPT:
            kept = self._store.answer(self._tree, question)
        with self._lock:
            if kept is not None and question not in self._asked:
                self._made.append(kept.made)
            self._asked.add(question)
        if kept is None:
            return None
        text = kept.answer if self._root is None else kept.answer.replace(_ROOT, self._root)
        answer: dict[str, Any] = json.loads(text)
        return answer

    def learn(self, message: Mapping[str, Any], answer: dict[str, Any]) -> None:
        """Take up an answer, to be kept if it may be."""
        if message["op"] in _KEPT and _KEPT[message["op"]](answer):
            text = json.dumps(answer)
            with self._lock:
                self._new[_question(message)] = (
                    text if self._root is None else text.replace(self._root, _ROOT)
                )

    def keep(self, imported: Imported) -> None:
        """Keep what was learnt, from processes that have ``imported`` this."""
        if not self._new:
            return
        imported = Imported(
            imported.files | self._imported.files, imported.directories | self._imported.directories
        )
        try:
            self._digests.check_unchanged(imported, self._begun)
        except Changed:
            return
        around = self._digests.surroundings(imported)
        named = hashlib.sha256(json.dumps(around, sort_keys=True).encode()).digest()
        self._tree = self._store.keep_tree(
            self._tree, self._context, (named, around), self._digests.tree(imported)
        )
        if self._tree is not None:
            self._store.keep_answers(self._tree, self._new)

    def keep_seconds(self, seconds: float) -> None:
        """Keep how long the run took, in which something was judged anew."""
        if self._tree is not None and self._new:
            self._store.keep_seconds(self._tree, self._questions, seconds)

    @property
    def _questions(self) -> bytes:
        return hashlib.sha256(b"".join(sorted(self._asked))).digest()

    def _same(self) -> int | None:
        """The tree that the store has and that is as it was."""
        around: dict[bytes, dict[str, str] | None] = {}
        for tree in self._store.trees(self._context):
            if tree.surroundings not in around:
                kept = self._store.surroundings(tree.surroundings)
                same = kept is not None and self._digests.are(kept)
                around[tree.surroundings] = kept if same else None
            outside = around[tree.surroundings]
            if outside is not None and self._digests.are(tree.files):
                self._imported = self._digests.imported(tree.files, outside)
                return tree.number
        return None


class Recalling:
    """What answers questions, as before where that is kept; else a worker does, started for it."""

    def __init__(self, workers: Workers, recall: Recall) -> None:
        self._workers = workers
        self._recall = recall
        self._worker: Answers | None = None if recall.knows else workers.start()

    def ask(self, timeout: float, **message: Any) -> dict[str, Any]:
        """The answer; raises what a worker raises."""
        kept = self._recall.answer(message)
        if kept is not None:
            return kept
        if self._worker is None:
            self._worker = self._started()
        answer = self._worker.ask(timeout, **message)
        self._recall.learn(message, answer)
        return answer

    def close(self) -> None:
        """End the worker, if there is one."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.close()

    def _started(self) -> Answers:
        could_be_imported = self._workers.any_started
        try:
            return self._workers.start()
        except EnvironmentFailure as failure:
            if could_be_imported:
                raise WorkerGone(str(failure)) from failure
            raise


def _question(message: Mapping[str, Any]) -> bytes:
    return hashlib.sha256(json.dumps(message, sort_keys=True).encode()).digest()


def _context(target: Target, python: str, memory: int, policies: Mapping[str, str]) -> bytes:
    """What an answer depends on beside what is read to import modules."""
    worker = environment(target, Path("scratch"))
    for varies in (MARK, "PYTHONDONTWRITEBYTECODE"):
        worker.pop(varies, None)
    home = Path(python).parent.parent / "pyvenv.cfg"
    binary = os.stat(os.path.realpath(python))
    context = {
        "given": judged_with(target, memory, policies),
        "installed": target.root is None,
        "environment": worker,
        "python": [python, os.path.realpath(python), binary.st_size, binary.st_mtime_ns],
        "packages": home.read_text(errors="replace") if home.is_file() else "",
        "machine": [platform.platform(), *_accelerators()],
    }
    return hashlib.sha256(json.dumps(context, sort_keys=True).encode()).digest()


def _accelerators() -> list[str]:
    """The devices by which vLLM chooses its platform."""
    try:
        return sorted(n for n in os.listdir("/dev") if n.startswith(("nvidia", "kfd", "accel")))
    except OSError:
        return []
