"""Sharing: why a request may read content that another request computed.

The *entry* that a layer keeps for a token is a function of some tokens of the request that
computed it. A hit reads it as if the resuming request had computed it, which is sound if and only
if those tokens are the same in both:

- In a target layer attention is causal: the entry of token i is a function of tokens 0 to i. So
  is a Mamba state as of token i. All of these tokens are part of a hit that includes token i.
- The draft layer of EAGLE combines the target's hidden state of token i with token i + 1, and the
  j-th MTP module with token i + j. So the last entries before a boundary depend on tokens past
  the hit. One MTP module that is applied repeatedly depends on one token only: it computes each
  entry of a prompt from token i + 1, and what it adds while it proposes is overwritten when the
  tokens are known. With m modules vLLM applies module j to the tokens shifted by j, so that entries
  depend on up to m tokens.

Block hashes identify tokens. Each is computed from the hash before it, so that equal hashes of a
block mean equal tokens from the start of the request to the end of the block (`is_chained`). A
cached block was found by its own hash, which determines every entry of a target layer in it, but
not the last entry of a draft layer. There are two remedies:

- EAGLE matches one more block, the lookahead block, and drops it; with m modules, blocks of at
  least m tokens. Its hash covers the token past the hit in the request that wrote *that* block.
  This determines the draft entry only if the same request also wrote the block before it.
- The hash of a block also covers the lookahead tokens after it, m with m modules (vLLM 0.33, unless
  ``disable_lookahead_block_hashes``). It determines everything in the block, whichever request
  wrote it, and no block need be dropped.

A step samples one token more than it computes. So with m > 1 modules the entries of the last m - 1
tokens are computed from drafts, and again once the tokens are known (`final_tokens`).
"""

from collections.abc import Callable

from hitproof.spec.terms import Blocks, Formula, Tokens


def is_determined(token: Tokens, lookahead_tokens: Tokens, agreed_tokens: Tokens) -> Formula:
    """Whether requests that agree on their first ``agreed_tokens`` tokens have equal entries.

    The entries are those of ``token``, a position. ``lookahead_tokens`` is how many tokens past
    that position the layer's entry depends on: 0 for target layers and Mamba states, 1 for EAGLE
    (Li et al., EAGLE, 2024), j for the j-th MTP module. vLLM:
    ``VllmConfig.num_prefill_lookahead_tokens``.
    """
    return token + lookahead_tokens < agreed_tokens


def covered_tokens(block: Blocks, block_size: Tokens, hash_lookahead: Tokens = 0) -> Tokens:
    """The first tokens on which two requests agree if they have the same hash of ``block``.

    ``hash_lookahead`` is how many tokens past the block its hash covers. vLLM:
    ``num_hash_lookahead_tokens``.
    """
    return (block + 1) * block_size + hash_lookahead


def final_tokens(num_computed: Tokens, lookahead_tokens: Tokens) -> Tokens:
    """How many of ``num_computed`` tokens have final entries when the step that computes them ends.

    Then at least one token more is known, and no more if all of them were computed. Later entries
    depend on tokens that are drafts so far. vLLM registers no more than these
    (``num_reprefillable_tokens`` is ``lookahead_tokens - 1``).
    """
    return num_computed - (lookahead_tokens - 1)


def is_chained(
    block: Blocks, same_hash: Callable[[Blocks], Formula], same_tokens: Callable[[Blocks], Formula]
) -> Formula:
    """Whether hashes of ``block`` >= 0 in two requests are equal exactly when they should be.

    That is, when the blocks hold the same tokens and the hashes before them are also equal. This
    assumes that the hash function is injective on the parent's hash, the tokens and the extra
    keys (LoRA, images, salt), which all count as tokens here.
    vLLM: ``hash_block_tokens``, ``get_request_block_hasher``.
    """
    return same_hash(block) == (same_tokens(block) & ((block == 0) | same_hash(block - 1)))
