"""What a resumed request reads: the basis of every other clause.

A request that resumes after a hit of L tokens computes the tokens at positions L, L+1, ...
Each of them attends to earlier tokens. Those before L are read from cached blocks, so every
block that holds one of them must be cached, and no other block need be. Mamba layers do not
attend: one state carries everything they need from the past.
"""

from hitproof.spec.terms import Blocks, Formula, Tokens, ceil_div, max


def attends(
    query: Tokens, token: Tokens, window: Tokens | None, chunk: Tokens | None = None
) -> Formula:
    """Whether the token at position ``query`` attends to the token at position ``token``.

    Causal attention, positions in tokens. With a sliding ``window`` of w tokens a token sees
    itself and the w - 1 tokens before it (Beltagy et al., Longformer, 2020; Jiang et al.,
    Mistral 7B, 2023). With a local ``chunk`` of C
    tokens it sees itself and the tokens before it in its own chunk, where chunks start at the
    multiples of C (Llama 4). With
    neither, this is full attention.
    """
    causal = token <= query
    if chunk is not None:
        return causal & (query // chunk * chunk <= token)
    return causal if window is None else causal & (query - token < window)


def reads_state(length: Tokens, token: Tokens) -> Formula:
    """Whether resuming after a hit of ``length`` tokens reads the state as of ``token``.

    A Mamba layer continues from its state after the last token of the hit and reads nothing
    else. Positions in tokens, from 0. In align mode each block keeps one state, the state as of
    the block's last token.
    """
    return token == length - 1


def replay_start(hit: Tokens, window: Tokens) -> Tokens:
    """The first token of a hit that is computed again for a window outside the prefix cache.

    Such a window has no entry of what was hit, and the token after a hit of ``hit`` tokens attends
    to the ``window - 1`` before it. Those are computed again, for the entries of the window alone:
    they do not attend to tokens before them. Sizes in tokens, ``window >= 1``.
    """
    return max(hit - window + 1, 0)


def tail_blocks(window: Tokens, block_size: Tokens) -> Blocks:
    """The tail t: how many blocks before a boundary a sliding window reaches into.

    The first token after a boundary attends to the ``window - 1`` tokens before it. They end
    at a block edge, so they span exactly ``ceil((window - 1) / block_size)`` blocks. Sizes in
    tokens, the tail in blocks; ``window >= 1`` and ``block_size >= 1``.
    """
    return ceil_div(window - 1, block_size)


def lookahead_blocks(lookahead_tokens: Tokens, block_size: Tokens) -> Blocks:
    """How many blocks past a boundary draft layers depend on, for entries before it.

    An entry of a draft layer depends on the ``lookahead_tokens`` tokens after its own: 1 for EAGLE
    and for one MTP module however often it is applied, m for m modules (`spec.sharing`). The last
    entry before a boundary depends on as many tokens past it, and they span that many blocks. A
    block is what the group drops: a hash unit where hits may end inside blocks.
    """
    return ceil_div(lookahead_tokens, block_size)
