"""What an event says of the blocks that it names, judged against the requests that have them."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.histories.naming import Name, Prefixes
from hitproof.conformance.histories.schema import EngineConfiguration, RequestInput
from hitproof.conformance.subject.managers import Removed, Stored
from hitproof.spec.groups import GroupKind

Wrong = tuple[Code, str, str]
"""What is wrong: its code, what must hold, and what is seen instead."""

DEVICE, HOST = "GPU", "CPU"
"""The media of blocks. vLLM: ``MEDIUM_GPU`` and ``MEDIUM_CPU``."""


class EventDescriptions:
    """What events of one history say of blocks on one medium.

    ``fine`` is whether entries may end inside blocks.
    """

    def __init__(
        self,
        engine: EngineConfiguration,
        requests: Mapping[str, RequestInput],
        prefixes: Prefixes,
        fine: bool,
        medium: str = DEVICE,
    ) -> None:
        self._engine = engine
        self._requests = requests
        self._prefixes = prefixes
        self._fine = fine
        self._medium = medium
        self._adapters: dict[int | None, str | None] = {None: None}
        """The name of each adapter by its number."""

    def wrong(self, event: Stored | Removed) -> Iterator[Wrong]:
        """What an event says of its blocks that they are not: one thing."""
        if event.medium not in (None, self._medium):
            what = "stored" if isinstance(event, Stored) else "removed"
            yield (
                Code.EVENT_DESCRIPTION_WRONG,
                f"the event that {', '.join(event.keys)} are {what} has medium {self._medium}",
                f"it has {event.medium}",
            )
        elif isinstance(event, Stored):
            yield from self._of_blocks(event)

    def _of_blocks(self, event: Stored) -> Iterator[Wrong]:
        """What a stored event says of its blocks that they are not."""
        if not event.keys or (request := self._prefixes.request(event.keys[-1])) is None:
            return
        ends = [self._prefixes.end(key) or 0 for key in event.keys]
        start = 0 if event.parent is None else self._prefixes.end(event.parent) or 0
        tokens = self._requests[request].token_ids[start : ends[-1]]
        parent = self._prefixes.name(request, start) if start else None
        first = [end - event.block_size for end in ends]
        due: dict[str, tuple[Any, Any]] = {
            "parent": (parent, event.parent),
            "token_ids": (tokens, event.token_ids[: len(tokens)]),
            "lora_name": (self._requests[request].lora_name, event.lora_name),
            "lora_id": (
                event.lora_name,
                self._adapters.setdefault(event.lora_id, event.lora_name)
                if event.says_numbers
                else event.lora_name,
            ),
            "order": (sorted(set(ends)), ends),
            "first block": (True, start <= first[0] < ends[0]),
        }
        spans = len(ends) == 1 and event.block_size == ends[0] - start
        if event.group is not None and not self._fine and not spans:
            due["block_size"] = self._engine.groups[event.group].block_size, event.block_size
        if event.group is not None and event.kind is not None:
            group = self._engine.groups[event.group]
            window = group.window if group.kind is GroupKind.SLIDING_WINDOW else event.window
            due |= {"kind": (group.kind, event.kind), "window": (window, event.window)}
        if event.ahead is not None:
            known, reach = self._requests[request].token_ids, self._engine.num_hash_lookahead_tokens
            covered = tuple(known[end : end + reach] for end in ends) if reach else ()
            due["tokens that its hash covers ahead"] = covered, event.ahead
        if event.extra_keys is not None:
            extra = [self._extra(key, event.block_size) for key in event.keys]
            images = {image.identifier for image in self._requests[request].images}
            named = [[t for t in _texts(each) if t in images] for each in event.extra_keys]
            if named or any(extra):  # events may leave them out where there are none
                said = (
                    (t for t in _texts(each) if not t.startswith(_EMBEDDED))
                    for each in event.extra_keys
                )
                due["extra_keys"] = extra, [sorted(each) for each in said]
                due["images"] = [self._images(key, event.block_size) for key in event.keys], named
        for field, (right, said) in due.items():
            if right != said:
                yield (
                    Code.EVENT_DESCRIPTION_WRONG,
                    f"the event that {', '.join(event.keys)} are stored has {field} {right}",
                    f"it has {said}",
                )
                return

    def _extra(self, key: Name, block_size: int) -> list[str]:
        """The texts among what a block's hash covers beside tokens."""
        request = self._requests[self._prefixes.request(key) or ""]
        salts = (self._prefixes.end(key) or 0) == block_size
        others = [request.lora_name, request.cache_salt if salts else None]
        images = self._images(key, block_size)
        return sorted([*images, *(text for text in others if text)])

    def _images(self, key: Name, block_size: int) -> list[str]:
        """The images that a block's hash covers, in the order of the prompt."""
        end = self._prefixes.end(key) or 0
        until = end + self._engine.num_hash_lookahead_tokens
        return [
            image.identifier
            for image in self._requests[self._prefixes.request(key) or ""].images
            if image.offset < until and end - block_size < image.offset + image.length
        ]


_EMBEDDED = "prompt_embeds"
"""What begins a text about embeddings; vLLM adds their hash as bytes."""


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Iterable) and not isinstance(value, bytes):
        for each in value:
            yield from _texts(each)
