"""Block hashes of a subject."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, order=True)
class Prompt:
    """What a request computes its blocks from.

    Attributes:
        tokens: its token ids.
        salt: the cache salt, or "".
        adapter: the LoRA adapter's name and path, or two times "".
    """

    tokens: tuple[int, ...]
    salt: str = ""
    adapter: tuple[str, str] = ("", "")


class HashSubject(Protocol):
    """Hashes blocks."""

    def block_hashes(
        self, prompt: Prompt, hash_block_size: int, block_size: int, hash_lookahead: int
    ) -> list[bytes]:
        """The hash of each full block of a prompt, for a group of ``block_size`` tokens a block.

        Hashes are computed for ``hash_block_size`` tokens each and cover ``hash_lookahead``
        tokens past their block.
        """
