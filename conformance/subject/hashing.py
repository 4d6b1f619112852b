"""Block hashes of a subject."""

from dataclasses import dataclass, replace
from typing import Protocol


@dataclass(frozen=True, order=True)
class Prompt:
    """What a request computes its blocks from.

    Attributes:
        tokens: its token ids, those that were generated after it included.
        salt: the cache salt, or "".
        adapter: the LoRA adapter's name and path, or two times "".
        images: multimodal items, each with its identifier, offset and length in tokens.
        embeddings: what each token's embedding is made of, where the prompt comes as embeddings; ()
            where it comes as token ids.
        num_generated: how many of the last tokens were generated.
        is_token_ids: where some of a prompt comes as token ids and some as embeddings, for each
            token of it which it is. vLLM: ``Request.prompt_is_token_ids``.
    """

    tokens: tuple[int, ...]
    salt: str = ""
    adapter: tuple[str, str] = ("", "")
    images: tuple[tuple[str, int, int], ...] = ()
    embeddings: tuple[int, ...] = ()
    num_generated: int = 0
    is_token_ids: tuple[bool, ...] = ()

    @property
    def given(self) -> tuple[int, ...]:
        """The token ids of the prompt itself."""
        return self.tokens[: len(self.tokens) - self.num_generated]

    @property
    def generated(self) -> tuple[int, ...]:
        """The token ids that were generated after it."""
        return self.tokens[len(self.tokens) - self.num_generated :]

    def agreed(self, num_tokens: int) -> "Prompt":
        """What its first tokens are computed from: an image counts as soon as it has begun.

        Whether a token was generated or given makes no difference.
        """
        is_token_ids = self.is_token_ids[:num_tokens]
        embeddings = () if is_token_ids and all(is_token_ids) else self.embeddings[:num_tokens]
        return replace(
            self,
            tokens=self.tokens[:num_tokens],
            images=tuple(image for image in self.images if image[1] < num_tokens),
            embeddings=embeddings,
            num_generated=0,
            is_token_ids=is_token_ids if embeddings and any(is_token_ids) else (),
        )

    def as_generated(self) -> "Prompt":
        """The same, with the token ids that a mixed prompt ends with taken for generated ones."""
        is_token_ids, embeddings = self.is_token_ids, self.embeddings
        while is_token_ids and is_token_ids[-1]:
            is_token_ids, embeddings = is_token_ids[:-1], embeddings[: len(is_token_ids) - 1]
        return replace(
            self, embeddings=embeddings, is_token_ids=is_token_ids if any(is_token_ids) else ()
        )


class HashSubject(Protocol):
    """Hashes blocks."""

    def block_hashes(
        self, prompt: Prompt, hash_block_size: int, block_size: int, hash_lookahead: int
    ) -> list[bytes]:
        """The hash of each full block of a prompt, for a group of ``block_size`` tokens a block.

        Hashes are computed for ``hash_block_size`` tokens each and cover ``hash_lookahead``
        tokens past their block.
        """
