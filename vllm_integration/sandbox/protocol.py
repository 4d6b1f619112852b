"""The protocol between the gate and its worker: one JSON object per line, each way.

The gate asks, the worker answers, in order. Every request has

- ``op``, the operation,
- ``token``, which no other request has,
- ``within``, the seconds that the gate waits for the answer. After that it ends the worker.

An answer has that ``token``, and ``ok``: true with the result beside it, or false with ``kind``, a
`Failure`, and ``message``. Anything else, a worker that ends and one that is late count as no
answer (`driver.WorkerGone`): the gate starts another worker and goes on.

========================= ==============================================================
``hello``                 Import the target; the first request. ``text`` is `TEXT`, ``root``
                          where the target is (null: installed), ``memory`` a limit in bytes,
                          ``policies`` values to judge by, ``predates`` features that the
                          release is too old for, ``managers`` and ``coordinators`` classes to
                          build, ``aliases`` new names with the old ones. Gives ``python``, and
                          whether ``copies`` can be made.
``copy``                  Fork; ``mark`` is the copy's `processes.MARK`, its pipes come over a
                          socket. Gives its ``number``.
``here``                  Answer, so that the gate knows that a copy works.
``ended``                 How the copy ``number`` ended: ``code``, null while it runs.
``policies``              How the target behaves where releases differ: ``policies``, or a
                          ``detail`` that says why that cannot be found out.
``reads``                 What the target's code reads of its inputs: ``reads``, and which
                          names of inputs are ``varied`` where they must not matter.
``check``                 Run the check of ``claim`` on ``configuration``. Gives ``statuses``,
                          ``paths``, ``states``, ``runs``, ``detail``, ``evidence``, ``footprints``
                          of its signatures; with ``facts`` also what the target did.
``unbounded``             Prove the statement ``name`` for all lengths, in ``seconds``, unless it
                          is ``proved`` already (digests). Gives its ``status``, a ``detail``, the
                          causes of known divergences ``outside`` of which it is proved,
                          ``evidence`` against it, or null, digests of what is ``proved`` now,
                          and the seconds of ``cpu`` that this took.
``equivalent``            Prove in ``seconds`` that the function ``name`` of a ``module`` does what
                          another version does, of which ``texts`` has the modules. Gives its
                          ``status`` and a ``detail``.
``replay``                Play the history ``play`` and judge it. Gives ``policies``, ``steps``,
                          ``lookups``, ``findings``, each with the ``cause`` that it is a
                          consequence of, the ``footprints`` of those without one, and why the
                          history ``ended`` early; or ``cannot``, the reason. With ``record`` also
                          that, digests of what was observed, and ``values``, all that was
                          observed at the step ``values``, and with ``trace`` that
                          (`conformance.explain.traces`). ``abilities`` adapts the history to
                          these instead of to the target.
``abilities``             What histories can ask of the target: ``abilities``; or ``cannot``.
``lockstep``              Play generated histories on target and reference, for ``seconds``
                          (`vllm_integration.worker.lockstep`).
``doctor``                Set up a deployment: of a model by its ``config``, with ``arguments``
                          of vLLM, serve prompts of these ``lengths``. Gives ``deployment`` and
                          ``rows``, or why it is ``refused`` (`vllm_integration.worker.doctor`).
``simulate``              Play a workload: its ``arrivals`` with their ``hashes`` (a file) on an
                          ``engine``, at most ``max_num_seqs`` at a time; without these go on with
                          it. Returns after ``seconds``: ``tokens`` that are computed, and once it
                          is ``done`` what was measured (`conformance.simulation.player`); or
                          ``cannot``, the reason, and whether it ``crashed``.
``finding``               From a divergence to a finding: shrink it, show it on a whole
                          manager, write it as a test, in one go.
``branches``              All branches of the target's managers, or of other ``modules``, and which
                          are in ``arcs``, by module; and all ``codes`` that are decided
                          (`vllm_integration.worker.branches`).
``selftest`` and others   See `vllm_integration.worker.selftest`.
========================= ==============================================================

A ``check`` or ``replay`` with ``branches`` gives ``arcs``, too: what ran of the target's managers,
or of the modules that it names; and, where it names none, the codes that were ``decided``.

``finding`` takes ``by``, which says where the divergence comes from and so what describes it:
``check`` (``evidence``), ``replay`` (``play``, ``signature``) or ``lockstep`` (``history``,
``shows``, and what the batch was asked with). At most ``budget`` checks or histories are run to
shrink it; 0 leaves it as it is. ``name`` is what the test is called; with "" nothing is
demonstrated. It gives ``finding``, the smallest case (null where it does not show again), what it
has ``passed`` of the source, and the ``trace`` where a history shows it; and ``demonstration``, a
`conformance.findings.demonstration.Demonstration` or {}. Where the question ends the worker the
gate asks again with less, so that a finding is never lost
(`vllm_integration.gate.sessions.Session.demonstrated`).
"""

from enum import StrEnum
from hashlib import sha256
from json import dumps, loads
from pathlib import Path
from typing import Any

OURS = "hitproof"
"""Our package, which the worker sees."""
_JUDGING = ("spec", "reference", "proofs", "conformance", "vllm_integration")
_TEXTS = (".py", ".toml", ".jinja", ".jsonl")


class Failure(StrEnum):
    """Why the worker could not carry out a request."""

    ENVIRONMENT = "environment"
    """The target does not import under this interpreter."""
    TAMPERED = "tampered"
    """The target changed the code that judges it."""
    RAISED = "raised"
    """An exception that nothing of ours expects; the worker goes on."""
    INTERNAL = "internal"
    """A fault of hitproof itself."""


def digest(home: Path) -> str:
    """The digest of the code, tables and series that judge, in a checkout; without tests."""
    result = sha256()
    for package in _JUDGING:
        for file in sorted((home / package).rglob("*")):
            if file.suffix in _TEXTS and "tests" not in file.relative_to(home).parts:
                result.update(file.read_bytes())
    return result.hexdigest()


TEXT = digest(Path(__file__).resolve().parents[2])
"""A digest of our own text. The gate and its worker must have the same: messages have no version.

They differ if hitproof is reinstalled while it runs.
"""


def encode(message: dict[str, Any]) -> bytes:
    """One message as a line."""
    return dumps(message, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> dict[str, Any]:
    """The message in a line; raises ValueError on anything else."""
    try:
        message = loads(line)
    except RecursionError as error:
        raise ValueError("it is too deeply nested") from error
    if not isinstance(message, dict):
        raise ValueError("a message is an object")
    return message
