"""Lives of real managers as transcripts, and those as histories in a file of JSON lines."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hitproof.conformance.histories.json_format import as_json, read
from hitproof.conformance.histories.schema import (
    EngineConfiguration,
    HistoryError,
    Image,
    RequestInput,
)
from hitproof.conformance.playing.transcript import Asked, Transcript, history_of
from hitproof.conformance.scope.limits import refusal
from hitproof.vllm_integration.shadow.real import tables_of

_CALLS = 100_000
_TOKENS = 1_000_000
_NOTED = (
    "get_computed_blocks",
    "allocate_slots",
    "cache_blocks",
    "free",
    "evict_blocks",
    "reset_prefix_cache",
    "new_step_starts",
)
_SILENT = ("take_events", "remove_skipped_blocks")
"""Calls that change nothing that the next allocation of the request does not change, too."""


class Recorder:
    """Notes what is asked of one manager: at most `_CALLS` calls and `_TOKENS` tokens."""

    def __init__(self, engine: EngineConfiguration) -> None:
        self.transcript = Transcript(engine)
        self._tokens = 0
        # By the request's id: the object, its name here, and how many tokens of it are noted.
        self._seen: dict[str, tuple[Any, str, int]] = {}

    def end(self, why: str) -> None:
        """Note nothing more, because of that."""
        if not self.transcript.ended:
            self.transcript.ended = why
        self._seen.clear()

    def before(
        self, method: str, values: Mapping[str, Any], managers: Sequence[Any]
    ) -> Asked | None:
        """What a call asks, as long as nothing is changed by it; None when it is not noted."""
        if self.transcript.ended or method in _SILENT:
            return None
        if method == "pop_blocks_for_free":  # they are freed once they are no longer written
            method = "free"
        if method not in _NOTED:
            self.end(f"{method} is called, for which histories have no step")
            return None
        if len(self.transcript.calls) >= _CALLS or self._tokens > _TOKENS:
            self.end(f"the record has {_CALLS} calls or {_TOKENS} tokens")
            return None
        request = values.get("request")
        name = "" if request is None else self._name(request)
        if self.transcript.ended:
            return None
        evicted: tuple[tuple[str, int, tuple[int, ...]], ...] = ()
        if method == "evict_blocks":
            evicted = self._places(set(values.get("block_ids", ())), managers)
        return Asked(
            method,
            name,
            0 if request is None else request.num_computed_tokens,
            0 if request is None else request.num_tokens,
            new_tokens=int(values.get("num_new_tokens") or 0),
            hit=int(values.get("num_new_computed_tokens") or 0),
            external=int(values.get("num_external_computed_tokens") or 0),
            lookahead=int(values.get("num_lookahead_tokens") or 0),
            delayed=bool(values.get("delay_cache_blocks")),
            must_fit=bool(values.get("full_sequence_must_fit")),
            computed=int(values.get("num_computed_tokens") or 0),
            evicted=evicted,
        )

    def after(self, asked: Asked, result: Any) -> None:
        """The call is done."""
        if self.transcript.ended:
            return
        if asked.method == "get_computed_blocks":
            asked = replace(asked, hit=int(result[1]))
        elif asked.method == "allocate_slots":
            asked = replace(asked, done=result is not None)
        elif asked.method == "reset_prefix_cache":
            asked = replace(asked, done=bool(result))
        self.transcript.calls.append(asked)

    def _name(self, request: Any) -> str:
        """The request's name in the record; notes it when it is new, and its new tokens."""
        known = self._seen.get(request.request_id)
        tokens = request.all_token_ids
        if known is None or known[0] is not request:
            name, number = str(request.request_id), 2
            while name in self.transcript.requests:
                name, number = f"{request.request_id}~{number}", number + 1
            try:
                made = input_of(request)
            except HistoryError as error:
                self.end(str(error))
                return ""
            self.transcript.requests[name] = made
            noted = len(made.prompt) + len(made.output)
            self._tokens += noted
        else:
            _, name, noted = known
            if len(tokens) != noted:
                more = tuple(int(token) for token in tokens[noted:])
                if len(tokens) < noted:
                    self.end(f"request {name} lost tokens")
                    return ""
                made = self.transcript.requests[name]
                self.transcript.requests[name] = replace(made, output=made.output + more)
                self._tokens += len(more)
                noted = len(tokens)
        self._seen[request.request_id] = request, name, noted
        return name

    def _places(
        self, block_ids: set[int], managers: Sequence[Any]
    ) -> tuple[tuple[str, int, tuple[int, ...]], ...]:
        """Blocks by the requests that hold them; the record ends when one has no holder."""
        found: list[tuple[str, int, tuple[int, ...]]] = []
        for request, name, _ in self._seen.values():
            for group, table in enumerate(tables_of(managers, request.request_id)):
                places = tuple(n for n, block in enumerate(table) if block.block_id in block_ids)
                if places:
                    found.append((name, group, places))
                    block_ids = block_ids - {table[n].block_id for n in places}
        if block_ids:
            self.end("blocks are evicted that no request holds")
        return tuple(found)


def write_histories(path: Path, transcripts: Iterable[Transcript]) -> tuple[int, list[str]]:
    """Write each life as one line; how many, and which ended early and why."""
    written, ended = 0, []
    with path.open("w", encoding="utf-8") as file:
        for transcript in transcripts:
            history, why = history_of(transcript)
            line = None if history is None else json.dumps(as_json(history))
            try:
                if line is not None:
                    read(line, "a history")  # what cannot be read back is no record
                    file.write(line + "\n")
                    written += 1
            except HistoryError as error:
                why = str(error)
            if why:
                ended.append(why)
    return written, ended


def input_of(request: Any) -> RequestInput:
    """A real request as a history has it. Raises `HistoryError` where it cannot."""
    if request.prompt_token_ids is None or getattr(request, "prompt_embeds", None) is not None:
        raise HistoryError(refusal("shadow-recording"))
    lora = request.lora_request
    tokens = tuple(int(token) for token in request.all_token_ids)
    prompt = request.num_prompt_tokens
    return RequestInput(
        prompt=tokens[:prompt],
        output=tokens[prompt:],
        lora_name=None if lora is None else lora.lora_name,
        lora_path=None if lora is None else lora.lora_path,
        cache_salt=request.cache_salt,
        images=tuple(
            Image(each.identifier, each.mm_position.offset, each.mm_position.length)
            for each in request.mm_features or ()
        ),
        skip_reading_prefix_cache=bool(getattr(request, "skip_reading_prefix_cache", False)),
    )
