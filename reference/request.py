"""A request as the manager sees it: its tokens, their hashes, and how many are computed."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from hitproof.reference.hashing import ExtraKeys, MultiModalFeature, extra_keys, hash_block_tokens


class Registered(NamedTuple):
    """What decides which blocks of a request are registered, in tokens; see `Request`."""

    num_prompt_tokens: int
    shared_prefix_boundary: int
    num_hash_lookahead_tokens: int


class Request:
    """Tokens and their block hashes, kept up to date. vLLM: ``vllm.v1.request.Request``.

    Attributes:
        num_computed_tokens: set by the scheduler, as in vLLM: tokens whose keys and values are
            in the request's blocks. It goes back to 0 on preemption.
        num_in_flight_tokens: set by the scheduler: of the computed tokens, those of steps whose
            results are not known. Drafts among them may be taken back.
        num_hash_lookahead_tokens: how many tokens past its block a hash covers.
        shared_prefix_boundary: set by `KVCacheManager.get_computed_blocks`: the end, in tokens, of
            a prefix that another request was seen to share, or 0.
    """

    def __init__(
        self,
        request_id: str,
        prompt_token_ids: Iterable[int],
        hash_block_size: int,
        lora_name: str | None = None,
        mm_features: Sequence[MultiModalFeature] = (),
        cache_salt: str | None = None,
        skip_reading_prefix_cache: bool = False,
        num_hash_lookahead_tokens: int = 0,
    ) -> None:
        self.request_id = request_id
        self.all_token_ids = list(prompt_token_ids)
        self.num_prompt_tokens = len(self.all_token_ids)
        self.hash_block_size = hash_block_size
        self.lora_name = lora_name
        self.mm_features = tuple(mm_features)
        self.cache_salt = cache_salt
        self.skip_reading_prefix_cache = skip_reading_prefix_cache
        self.num_hash_lookahead_tokens = num_hash_lookahead_tokens
        self.num_computed_tokens = 0
        self.num_in_flight_tokens = 0
        self.shared_prefix_boundary = 0
        self.block_hashes: list[bytes] = []
        self._hash_full_blocks()

    @property
    def num_tokens(self) -> int:
        """Prompt and output tokens."""
        return len(self.all_token_ids)

    @property
    def num_hashed_tokens(self) -> int:
        """Tokens whose blocks have a hash: a block has one once all tokens it covers are known."""
        return len(self.block_hashes) * self.hash_block_size

    @property
    def registered(self) -> Registered:
        """What decides which of its blocks are registered."""
        return Registered(
            self.num_prompt_tokens, self.shared_prefix_boundary, self.num_hash_lookahead_tokens
        )

    def append_output_token_ids(self, *token_ids: int) -> None:
        """Add decoded tokens, and hash the blocks that they fill."""
        self.all_token_ids.extend(token_ids)
        self._hash_full_blocks()

    def extra_keys(self, start: int, end: int) -> ExtraKeys:
        """The extra keys of the block of tokens from ``start`` to ``end``."""
        covered = end + self.num_hash_lookahead_tokens
        return extra_keys(start, covered, self.lora_name, self.mm_features, self.cache_salt)

    def _hash_full_blocks(self) -> None:
        size, ahead = self.hash_block_size, self.num_hash_lookahead_tokens
        parent = self.block_hashes[-1] if self.block_hashes else None
        last = self.num_tokens - size - ahead
        for start in range(len(self.block_hashes) * size, last + 1, size):
            end = start + size
            tokens = self.all_token_ids[start:end]
            parent = hash_block_tokens(
                parent, tokens, self.extra_keys(start, end), self.all_token_ids[end : end + ahead]
            )
            self.block_hashes.append(parent)
