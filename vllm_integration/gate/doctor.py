"""Doctor: what a model will hit on a release with vLLM's arguments, and what would be better."""

import json
import os
import shlex
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hitproof.conformance.explain.reuse import Part
from hitproof.vllm_integration.bundled import MODELS
from hitproof.vllm_integration.sandbox.driver import Limits, Worker
from hitproof.vllm_integration.targets.target import Target

_LENGTH = "--max-model-len"
_LONGEST = 65_536
"""The greatest length of a request, unless it is said: the pool need not have room for more."""
_FINE = 16
_COARSE = 64
_LARGE = 16_384
_SPECULATION = "--speculative-config"
_CONNECTORS = ("--kv-offloading-size", "--kv-offloading-backend", "--kv-transfer-config")
_LEFT_OUT = ("--quantization", "-q", "--data-parallel-size", "-dp")
"""Arguments that decide nothing about the cache of one replica, and take kernels or processes."""


class ModelError(ValueError):
    """There is no such model, or it cannot be served; the message names the remedy."""


class OutOfReach(ModelError):
    """Doctor cannot set the deployment up, whatever the target does with it."""


@dataclass(frozen=True)
class Model:
    """A model by its configuration.

    Attributes:
        name: what it is called: a path, or one of those that hitproof has.
        config: the text of its config.json.
        directory: where that is.
    """

    name: str
    config: str
    directory: Path

    @property
    def quantized_cache(self) -> bool:
        """Whether its quantization says how keys and values are stored."""
        raw = json.loads(self.config)
        text = raw.get("text_config") or {}
        said = raw.get(_QUANTIZATION) or text.get(_QUANTIZATION) or {}
        return any(said.get(name) for name in ("kv_cache_scheme", "kv_cache_quant_algo"))

    @property
    def greatest_length(self) -> int:
        """Tokens of the longest request that it says it can serve; 0 if it does not say."""
        raw = json.loads(self.config)
        text = raw.get("text_config") or {}
        return int(raw.get(_POSITIONS) or text.get(_POSITIONS) or 0)


_POSITIONS = "max_position_embeddings"
_QUANTIZATION = "quantization_config"


@dataclass(frozen=True)
class Wanted:
    """What is asked.

    Attributes:
        model: the model.
        arguments: vLLM's own.
        lengths: of prompts, or of the system prompts that siblings share, in tokens.
        answer: tokens that each request samples.
        question: tokens that a second turn and siblings add.
    """

    model: Model
    arguments: tuple[str, ...]
    lengths: tuple[int, ...]
    answer: int
    question: int

    @property
    def cut(self) -> bool:
        """Whether the greatest length is cut, since it is not said and the model's is long."""
        said = any(each.partition("=")[0] == _LENGTH for each in self.arguments)
        return not said and self.model.greatest_length > _LONGEST

    def asked(self, arguments: Sequence[str], shortest: bool = False) -> dict[str, Any]:
        """The question to a worker, with these arguments."""
        for option in _LEFT_OUT:
            arguments = _without(arguments, option)
        length = (_LENGTH, str(_LONGEST)) if self.cut else ()
        return {
            "op": "doctor",
            "config": self.model.config,
            "arguments": [*arguments, *length],
            "lengths": self.lengths,
            "answer": self.answer,
            "question": self.question,
            "shortest": shortest,
        }


@dataclass(frozen=True)
class Change:
    """What requests hit otherwise.

    Attributes:
        what: the arguments, or the release.
        better: rows that hit more, each with the hit that it has then.
        worse: rows that hit less.
        refused: why the target does not start so; empty where it does.
    """

    what: str
    better: tuple[tuple[dict[str, Any], int], ...] = ()
    worse: tuple[tuple[dict[str, Any], int], ...] = ()
    refused: str = ""

    def as_json(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "change": self.what,
            "better": list(map(_changed, self.better)),
            "worse": list(map(_changed, self.worse)),
            "refused": self.refused,
        }


def _changed(pair: tuple[dict[str, Any], int]) -> dict[str, Any]:
    row, hit = pair
    emptied = {"emptied": row["emptied"]} if "emptied" in row else {}
    return {**{name: row[name] for name in ("prompt", "reuse", "hit")}, "then": hit, **emptied}


@dataclass(frozen=True)
class Diagnosis:
    """The answer.

    Attributes:
        target: the release.
        wanted: what was asked.
        deployment: groups, block sizes and alignment, as a worker has them.
        rows: what each request hits, what it would at best, and why not.
        broken_rules: what is wrong with groups and sizes, each with ``rule`` and ``sentence``.
        shortest: the shortest prompt whose resend hits anything; None where none was found.
        shortest_at_best: the same at best.
        arguments: other arguments that let some request hit more.
        releases: other releases.
    """

    target: Target
    wanted: Wanted
    deployment: dict[str, Any]
    rows: list[dict[str, Any]]
    broken_rules: list[dict[str, str]]
    shortest: int | None
    shortest_at_best: int
    arguments: list[Change] = field(default_factory=list)
    releases: list[Change] = field(default_factory=list)

    @property
    def short(self) -> list[dict[str, Any]]:
        """The rows that hit less than they could."""
        return [row for row in self.rows if row["shortfall"]]


def read_model(name: str) -> Model:
    """A model by name, by its directory or by its config.json. Raises `ModelError`."""
    path = Path(name)
    if not path.exists():
        path = _bundled(name) or path
    if path.is_dir():
        path /= "config.json"
    try:
        text = path.read_text(encoding="utf-8")
        config = json.loads(text)
    except (OSError, ValueError) as error:
        if not path.exists():
            raise ModelError(
                f"{name} has no config.json; name a directory that has one, the file, or one of "
                f"{', '.join(bundled_models())}"
            ) from None
        raise ModelError(f"{path} cannot be read ({error}); name a model's config.json") from None
    if not isinstance(config, dict) or not config.get("architectures"):
        raise ModelError(f"{path} names no architectures; name a model's config.json")
    return Model(name, text, path.parent.resolve())


def bundled_models() -> list[str]:
    """The names of the models that hitproof has."""
    return sorted(each.parent.name for each in MODELS.glob("*/config.json"))


def bundled_drafts() -> list[str]:
    """The names of the draft models that hitproof has."""
    return sorted(each.parent.name for each in _DRAFTS.glob("*/config.json"))


_DRAFTS = MODELS / "drafts"


def _bundled(name: str) -> Path | None:
    """The directory of a model or draft model that hitproof has."""
    places = (MODELS / name, _DRAFTS / name)
    return next((each for each in places if (each / "config.json").is_file()), None)


def with_paths(arguments: Sequence[str]) -> tuple[str, ...]:
    """Arguments for a process elsewhere: draft models by absolute paths."""
    found = list(arguments)
    for index, each in enumerate(found):
        option, equals, value = each.partition("=")
        if option != _SPECULATION:
            continue
        at = index if equals else index + 1
        if at < len(found):
            value = value if equals else found[at]
            found[at] = f"{option}={_absolute(value)}" if equals else _absolute(value)
    return tuple(found)


def _absolute(speculation: str) -> str:
    try:
        raw = json.loads(speculation)
        model = raw.get("model")
    except (ValueError, AttributeError):
        return speculation  # the target says what is wrong with it
    if isinstance(model, str):
        path = _bundled(model) or Path(model)
        if path.is_dir():
            raw["model"] = os.path.abspath(path)
    return json.dumps(raw)


def diagnose(target: Target, others: Sequence[Target], wanted: Wanted, limits: Limits) -> Diagnosis:
    """Set the deployment up on the target, and again with other arguments and on other releases.

    Raises `ModelError` where the target refuses it, and the exceptions of `Worker`.
    """

    def on(other: Target) -> dict[str, Any]:
        with Worker(other, limits) as worker:
            return worker.ask(limits.timeout, **wanted.asked(wanted.arguments))

    with ThreadPoolExecutor(max(1, len(others))) as threads:
        elsewhere = [(other, threads.submit(on, other)) for other in others]
        with Worker(target, limits) as worker:
            answer = worker.ask(limits.timeout, **wanted.asked(wanted.arguments, shortest=True))
            if answer["refused"]:
                raise _refusal(wanted.model, target.label, answer)
            rows = answer["rows"]
            changes = [
                _change(shlex.join(more), rows, worker.ask(limits.timeout, **wanted.asked(args)))
                for more, args in _alternatives(wanted, answer)
            ]
        releases = [_change(other.label, rows, each.result()) for other, each in elsewhere]
    if not rows:
        raise ModelError(
            f"prompts of {wanted.lengths[0]} tokens and what follows them do not fit into "
            f"{answer['deployment']['max_model_len']} tokens; name shorter ones with --prompt"
        )
    return Diagnosis(
        target,
        wanted,
        answer["deployment"],
        rows,
        answer["broken_rules"],
        answer["shortest"],
        answer["shortest_at_best"],
        [each for each in changes if each.better],
        releases,
    )


def _refusal(model: Model, release: str, answer: dict[str, Any]) -> ModelError:
    """Why a deployment has no hits, where that limit comes from, and what to do."""
    kind = OutOfReach if answer["end"] == "out of reach" else ModelError
    said = _ENDS[answer["end"]]["sentence"].format(
        model=model.name, release=f"vLLM {release}", why=answer["refused"]
    )
    return kind(said)


_ENDS: dict[str, dict[str, str]] = tomllib.loads(
    Path(__file__).with_name("ends.toml").read_text(encoding="utf-8")
)
"""The sentences about deployments without hits."""


def _alternatives(wanted: Wanted, answer: dict[str, Any]) -> Iterator[tuple[list[str], list[str]]]:
    """Arguments that may help: what is said of them, and all arguments with them."""
    deployment, given = answer["deployment"], list(wanted.arguments)
    parts = {row["shortfall"]["part"] for row in answer["rows"] if row["shortfall"]}
    modes = deployment["mamba_cache_mode"]
    more: list[list[str]] = []
    if not deployment["prefix_caching"]:
        more.append(["--enable-prefix-caching"])
    if Part.RETENTION in parts:
        dense = str(deployment["scheduler_block_size"])
        more.append(["--prefix-cache-retention-interval", dense])
    if modes is not None and deployment["alignment"] > _COARSE:
        more.append(["--prefix-match-unit", str(_FINE)])
    if modes == "align" and Part.CHUNKS in parts:
        more.append(["--mamba-cache-mode", "all"])
    if Part.CHUNKS in parts:
        more.append(["--max-num-batched-tokens", str(_LARGE)])
    if Part.POOL in parts:
        more.append(["--num-gpu-blocks-override", str(4 * deployment["num_blocks"])])
    for each in more:
        yield each, [*given, *each]
    tier = deployment["tier"] is not None
    if deployment["use_eagle"] and (tier or Part.LOOKUP in parts or _misses(answer)):
        yield [f"without {_SPECULATION}"], _without(given, _SPECULATION)
    if tier:
        alone = given
        for option in _CONNECTORS:
            alone = _without(alone, option)
        yield ["without the KV connector"], alone


def _misses(answer: dict[str, Any]) -> bool:
    return any(not row["hit"] for row in answer["rows"])


def _without(arguments: Sequence[str], option: str) -> list[str]:
    kept, skipped = [], False
    for each in arguments:
        if skipped:
            skipped = False
        elif each == option:
            skipped = True
        elif not each.startswith(f"{option}="):
            kept.append(each)
    return kept


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["prompt"], row["reuse"], row.get("emptied")


def _change(what: str, rows: Sequence[dict[str, Any]], answer: dict[str, Any]) -> Change:
    if answer["refused"]:
        return Change(
            what.strip("'"), refused=_ENDS[answer["end"]]["change"].format(why=answer["refused"])
        )
    then = {_key(row): row["hit"] for row in answer["rows"]}
    pairs = [(row, then.get(_key(row), row["hit"])) for row in rows]
    return Change(
        what.strip("'"),
        tuple((row, hit) for row, hit in pairs if hit > row["hit"]),
        tuple((row, hit) for row, hit in pairs if hit < row["hit"]),
    )
