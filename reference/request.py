"""A request as the manager sees it: its tokens, their block hashes, and how many are computed.

A block's hash chains over its whole prefix: the parent's hash, the block's tokens, the extra keys
that change what a layer computes from the same tokens, and the tokens after it that hashes look
ahead to. Two different inputs are spelt differently before they go through SHA-256. vLLM:
``hash_block_tokens`` and ``generate_block_hash_extra_keys``.
"""

from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256

ExtraKeys = Callable[[int, int], object]
"""What besides tokens the block of tokens from one to another depends on."""


def hash_block_tokens(
    parent: bytes | None,
    token_ids: Sequence[int],
    extra: object = None,
    lookahead_token_ids: Sequence[int] = (),
) -> bytes:
    """The hash of a full block; ``parent`` is None for the first one.

    ``lookahead_token_ids`` are the tokens after the block that the hash also covers.
    """
    spelt = repr((parent, tuple(token_ids), extra, tuple(lookahead_token_ids)))
    return sha256(spelt.encode()).digest()


def block_hashes_of_size(
    hashes: Sequence[bytes], hash_block_size: int, block_size: int
) -> Sequence[bytes]:
    """The hashes of blocks of ``block_size`` tokens, a multiple of ``hash_block_size``.

    A hash chains over all before it, so a block's hash is that of its last unit. vLLM:
    ``BlockHashListWithBlockSize`` (which up to 0.23 joins the units' hashes).
    """
    units = block_size // hash_block_size
    return hashes if units == 1 else hashes[units - 1 :: units]


class Request:
    """Tokens and their block hashes, kept up to date. vLLM: ``vllm.v1.request.Request``.

    Attributes:
        num_computed_tokens: set by the scheduler, as in vLLM: tokens whose keys and values are
            in the request's blocks. It goes back to 0 on preemption.
        num_in_flight_tokens: set by the scheduler: of the computed tokens, those of steps whose
            results are not known. Drafts among them may be taken back.
        extra_keys: what its blocks depend on besides tokens, of all tokens that a hash covers.
        num_hash_lookahead_tokens: how many tokens past its block a hash covers.
        shared_prefix_boundary: set by `KVCacheManager.get_computed_blocks`: the end, in tokens, of
            a prefix that another request was seen to share, or 0.
    """

    def __init__(
        self,
        request_id: str,
        prompt_token_ids: Iterable[int],
        hash_block_size: int,
        extra_keys: ExtraKeys = lambda _, __: None,
        skip_reading_prefix_cache: bool = False,
        num_hash_lookahead_tokens: int = 0,
    ) -> None:
        self.request_id = request_id
        self.all_token_ids = list(prompt_token_ids)
        self.num_prompt_tokens = len(self.all_token_ids)
        self.hash_block_size = hash_block_size
        self.extra_keys = extra_keys
        self.skip_reading_prefix_cache = skip_reading_prefix_cache
        self.num_hash_lookahead_tokens = num_hash_lookahead_tokens
        self.num_computed_tokens = self.num_in_flight_tokens = self.shared_prefix_boundary = 0
        self.block_hashes: list[bytes] = []
        self.append_output_token_ids()

    @property
    def num_tokens(self) -> int:
        """Prompt and output tokens."""
        return len(self.all_token_ids)

    def hashes(self, block_size: int) -> Sequence[bytes]:
        """The hashes of its blocks of ``block_size`` tokens, once all that each covers is known."""
        return block_hashes_of_size(self.block_hashes, self.hash_block_size, block_size)

    def append_output_token_ids(self, *token_ids: int) -> None:
        """Add decoded tokens, and hash the blocks that they fill."""
        self.all_token_ids.extend(token_ids)
        size, ahead = self.hash_block_size, self.num_hash_lookahead_tokens
        parent = self.block_hashes[-1] if self.block_hashes else None
        last = self.num_tokens - size - ahead
        for start in range(len(self.block_hashes) * size, last + 1, size):
            end = start + size
            tokens, after = self.all_token_ids[start:end], self.all_token_ids[end : end + ahead]
            extra = self.extra_keys(start, end + ahead)
            parent = hash_block_tokens(parent, tokens, extra, after)
            self.block_hashes.append(parent)
