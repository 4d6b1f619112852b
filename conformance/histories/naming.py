"""Names for block keys that do not depend on the manager's hash function.

A block is identified by its content: the tokens from the start of the request to the block's end,
the LoRA adapter, the salt, and the images and embeddings that begin before that end. Two blocks are
the same exactly when these are equal. Where hashes look ahead, the tokens that follow count as
well.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from hitproof.conformance.histories.schema import RequestInput
from hitproof.spec.claims import Divergence

Name = str
"""A prefix, named by a request that has it: ``a[0:32]`` is the first 32 tokens of request a."""


class Naming(Protocol):
    """Names prefixes of requests, with equal names for equal prefixes; see `Prefixes`."""

    def name(self, request: str, end: int) -> Name:
        """The name of the request's first ``end`` tokens."""


class Prefixes:
    """Names the prefixes of a history's requests, with equal names for equal prefixes.

    Prefixes end on multiples of ``step`` tokens, the hash block size. Two of them are equal only
    if they are also followed by the same ``lookahead`` tokens; one that is followed by fewer tokens
    equals none.
    """

    def __init__(self, requests: Mapping[str, RequestInput], step: int, lookahead: int = 0) -> None:
        self._step = step
        self._names: dict[str, list[Name]] = {}
        self._first: dict[Name, tuple[str, int]] = {}
        self._alike: dict[Name, Name] = {}
        first: dict[tuple[Any, ...], Name] = {}
        for request_name, request in requests.items():
            chain: Name = ""
            names = self._names[request_name] = []
            tokens = request.token_ids
            for end in range(step, len(tokens) + 1, step):
                if end + lookahead > len(tokens):
                    chain = f"{request_name}[0:{end}], where it ends"
                else:
                    content = self._content(request, tokens, end - step, end + lookahead)
                    chain = first.setdefault((chain, *content), f"{request_name}[0:{end}]")
                names.append(chain)
                self._first.setdefault(chain, (request_name, end))

    @staticmethod
    def _content(
        request: RequestInput, tokens: Sequence[int], start: int, end: int
    ) -> tuple[Any, ...]:
        images = tuple(
            (image.identifier, image.offset - start)
            for image in request.images
            if image.offset < end and start < image.offset + image.length
        )
        salt = request.cache_salt if start == 0 else None
        rows = tuple(
            (place - start, value)
            for place, value in request.embedded.items()
            if start <= place < end
        )
        return tokens[start:end], images, rows, request.lora_name, request.lora_path, salt

    def name(self, request: str, end: int) -> Name:
        """The name of the request's first ``end`` tokens."""
        name = self._names[request][end // self._step - 1]
        return self._alike.get(name, name)

    def confuse(self, first: Name, second: Name) -> None:
        """The manager has one key for both: from now on the second is called by the first's name.

        The manager cannot distinguish them, so neither can the judge of its registrations.
        """
        self._alike[second] = first

    def end(self, name: Name) -> int | None:
        """How many tokens the named prefix has; None when no request has it."""
        found = self._first.get(name)
        return None if found is None else found[1]

    def request(self, name: Name) -> str | None:
        """The first request that has the named prefix; None when none has it."""
        found = self._first.get(name)
        return None if found is None else found[0]


class Names:
    """The names behind one manager's keys, learned as requests grow."""

    def __init__(self, prefixes: Prefixes) -> None:
        self._prefixes = prefixes
        self._of_key: dict[Any, Name] = {}
        self._key_of: dict[tuple[int, Name], Any] = {}
        self._known: dict[tuple[str, int], int] = {}
        self.ambiguous: set[Name] = set()
        """Prefixes whose key other content has, too, or that have several keys."""

    def learn(
        self, request: str, block_size: int, keys: Sequence[Any]
    ) -> tuple[Divergence, Name, Name] | None:
        """Learn the keys of a request's blocks; returns the first two blocks with wrong keys.

        Different contents must have different keys, or a block is served for the wrong content.
        Equal contents must have equal keys, or hits are lost.
        """
        known = self._known.get((request, block_size), 0)
        self._known[request, block_size] = len(keys)
        wrong = None
        for index in range(known, len(keys)):
            name = self._prefixes.name(request, (index + 1) * block_size)
            other = self._of_key.setdefault(keys[index], name)
            if other != name:
                self._prefixes.confuse(other, name)
                self.ambiguous.add(other)
                wrong = wrong or (Divergence.UNSOUND, other, name)
            elif self._key_of.setdefault((block_size, name), keys[index]) != keys[index]:
                self.ambiguous.add(name)
                wrong = wrong or (Divergence.LOST_HIT, name, name)
        return wrong

    def name(self, key: Any) -> Name:
        """The name of a key; a key that no request has is called unknown."""
        found = self._of_key.get(key)
        return f"unknown key {key!r}" if found is None else found
