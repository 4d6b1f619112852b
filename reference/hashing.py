"""Block hashes: what makes two blocks hold the same keys and values.

A block's hash chains over its whole prefix: the parent's hash, the block's tokens, and the extra
keys that change what a layer computes from the same tokens. The bytes that go through SHA-256
are canonical, so a hash is the same in every process, and two different inputs never give the
same bytes:

- the parent's hash (32 bytes; `ROOT` for the first block),
- the number of tokens, then each token id: signed 64-bit integers, big-endian,
- the extra keys in the order LoRA, multimodal items, salt: each a tag byte, then its fields. A
  string is its length in UTF-8 bytes (64-bit) and those bytes; an offset is 64-bit,
- where hashes look ahead: a tag byte, the number of lookahead tokens, and those tokens.

vLLM: ``hash_block_tokens`` and ``generate_block_hash_extra_keys``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from struct import pack

from hitproof.spec.groups import ConfigurationError

ROOT = bytes(32)
"""The parent of every first block. vLLM: ``NONE_HASH``, which is random by default."""


@dataclass(frozen=True)
class MultiModalFeature:
    """A multimodal item whose placeholder tokens a prompt holds; positions in tokens.

    vLLM: ``MultiModalFeatureSpec`` with its ``mm_position``.
    """

    identifier: str
    offset: int
    length: int


@dataclass(frozen=True)
class ExtraKeys:
    """What besides tokens a block's keys and values depend on.

    Attributes:
        lora: the adapter's name.
        items: each multimodal item in the block, with its offset from the block's start.
        salt: the request's cache salt, in the first block only; the chain propagates it.
    """

    lora: str | None = None
    items: tuple[tuple[str, int], ...] = ()
    salt: str | None = None

    def canonical_bytes(self) -> bytes:
        """The keys as they go into the hash."""
        parts = [] if self.lora is None else [b"L", *_string(self.lora)]
        for identifier, offset in self.items:
            parts += [b"M", *_string(identifier), pack(">q", offset)]
        if self.salt is not None:
            parts += [b"S", *_string(self.salt)]
        return b"".join(parts)


NO_EXTRA_KEYS = ExtraKeys()


def extra_keys(
    start: int, end: int, lora: str | None, items: Sequence[MultiModalFeature], salt: str | None
) -> ExtraKeys:
    """The extra keys of the block of tokens from ``start`` to ``end``.

    Every item that has a token in the block counts.
    """
    inside = tuple(
        (item.identifier, item.offset - start)
        for item in items
        if item.offset < end and start < item.offset + item.length
    )
    first_salt = (salt or None) if start == 0 else None
    if lora is None and not inside and first_salt is None:
        return NO_EXTRA_KEYS
    return ExtraKeys(lora, inside, first_salt)


def hash_block_tokens(
    parent: bytes | None,
    token_ids: Sequence[int],
    keys: ExtraKeys = NO_EXTRA_KEYS,
    lookahead_token_ids: Sequence[int] = (),
) -> bytes:
    """The hash of a full block; ``parent`` is None for the first one.

    ``lookahead_token_ids`` are the tokens after the block that the hash also covers.
    """
    ahead = b"A" + _tokens(lookahead_token_ids) if lookahead_token_ids else b""
    parts = (parent or ROOT, _tokens(token_ids), keys.canonical_bytes(), ahead)
    return sha256(b"".join(parts)).digest()


def block_hashes_of_size(
    hashes: Sequence[bytes], hash_block_size: int, block_size: int
) -> Sequence[bytes]:
    """The hashes of blocks of ``block_size`` tokens, from those of ``hash_block_size`` tokens.

    A hash chains over all before it, so a block's hash is that of its last unit. vLLM:
    ``BlockHashListWithBlockSize`` (which up to 0.23 joins the units' hashes). Raises
    `ConfigurationError` when the block size is not a multiple of the hash block size.
    """
    if block_size % hash_block_size:
        raise ConfigurationError(
            f"the block size ({block_size} tokens) must be a multiple of the hash block size "
            f"({hash_block_size} tokens)"
        )
    units = block_size // hash_block_size
    return hashes if units == 1 else hashes[units - 1 :: units]


def _tokens(token_ids: Sequence[int]) -> bytes:
    return pack(f">{len(token_ids) + 1}q", len(token_ids), *token_ids)


def _string(text: str) -> tuple[bytes, bytes]:
    encoded = text.encode()
    return pack(">q", len(encoded)), encoded
