"""Sharing: why a request may read content that another one computed.

What a layer keeps for a token is a function of some tokens of the request that computed it. A hit
reads it as if the resuming request had computed it, which is sound just when those tokens are
the same in both:

- In a target layer attention is causal: the entry of token i is a function of tokens 0 to i. So
  is a Mamba state as of token i. All of them are part of a hit that serves token i.
- The draft layer of EAGLE combines what the target made of token i with token i + 1, and the j-th
  MTP module with token i + j. So the last entries before a boundary hang on tokens past the hit.

Block hashes vouch for tokens. Each is computed from the hash before it, so that equal hashes of a
block mean equal tokens from the start of the request to the end of the block (`is_chained`). A
cached block was found under its own hash, which vouches for every entry of a target layer in it
and leaves open the last entry of a draft layer. There are two ways out:

- EAGLE matches one block more, the lookahead block, and drops it. Its hash vouches for the token
  past the hit in the request that wrote *that* block. Only when the same request wrote the block
  before it does this settle the draft entry.
- The hash of a block covers the lookahead tokens after it as well (vLLM 0.33, unless
  ``disable_lookahead_block_hashes``). It vouches for all that is in the block, whoever wrote it,
  and nothing need be dropped.
"""

from collections.abc import Callable

from hitproof.spec.terms import INTEGERS, Arithmetic, Formula, Term


def is_determined(token: Term, lookahead_tokens: Term, agreed_tokens: Term) -> Formula:
    """Whether two requests that agree on ``agreed_tokens`` tokens have one entry for ``token``.

    ``lookahead_tokens`` is how many tokens past its own the layer takes in: 0 for target layers
    and Mamba states, 1 for EAGLE (Li et al., EAGLE, 2024), j for the j-th MTP module. vLLM:
    ``VllmConfig.num_prefill_lookahead_tokens``.
    """
    return token + lookahead_tokens < agreed_tokens


def vouched_tokens(
    block: Term, block_size: Term, hash_lookahead: Term = 0, arithmetic: Arithmetic = INTEGERS
) -> Term:
    """How many tokens two requests agree on, at least, when the hash of ``block`` is the same.

    ``hash_lookahead`` is how many tokens past the block its hash covers. vLLM:
    ``num_hash_lookahead_tokens``.
    """
    return arithmetic.times(block + 1, block_size) + hash_lookahead


def is_chained(
    block: Term, same_hash: Callable[[Term], Formula], same_tokens: Callable[[Term], Formula]
) -> Formula:
    """Whether hashes of ``block`` >= 0 in two requests are equal just when they should be.

    That is, when the blocks hold the same tokens and the hashes before them are equal, too. That
    equal hashes mean this much is an assumption: the hash function is injective on the parent's
    hash, the tokens and the extra keys (LoRA, images, salt), all of which count as tokens here.
    vLLM: ``hash_block_tokens``, ``get_request_block_hasher``.
    """
    return same_hash(block) == (same_tokens(block) & ((block == 0) | same_hash(block - 1)))
