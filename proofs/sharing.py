"""The theorems on sharing: what the matched hashes of a hit determine.

``block`` and ``boundary`` are in blocks; ``token``, ``block_size``, ``lookahead_tokens`` and
``hash_lookahead`` in tokens.
"""

from collections.abc import Iterable
from functools import partial

from hitproof.proofs.cases import CASES, any_group, case_name
from hitproof.proofs.interpretation import Interpretation
from hitproof.proofs.obligation import Hypotheses, Mutant, Obligation, Statement
from hitproof.spec import attention, hits, sharing
from hitproof.spec.groups import GroupKind
from hitproof.spec.terms import Term, for_all, implies, not_


def _held(at: Interpretation) -> tuple[Term, Term, Term, Hypotheses]:
    """Any block, its size, and any token in it."""
    block, token, block_size = at.integer("block"), at.integer("token"), at.integer("block_size")
    first, end = block * block_size, (block + 1) * block_size
    return (
        block,
        token,
        block_size,
        (
            ("a block holds at least one token", 1 <= block_size),
            ("blocks are counted from 0", 0 <= block),
            ("the block holds the token", (first <= token) & (token < end)),
        ),
    )


def _own_hash_suffices(at: Interpretation, reads_ahead: bool) -> Statement:
    block, token, block_size, held = _held(at)
    ahead, covered = 0, 0
    if reads_ahead:
        ahead, covered = at.integer("lookahead_tokens"), at.integer("hash_lookahead")
        held = (*held, ("the hash covers the lookahead tokens", ahead <= covered))
    agreed = sharing.covered_tokens(block, block_size, covered)
    return Statement(held, sharing.is_determined(token, ahead, agreed))


def _hit_determines(
    at: Interpretation, kind: GroupKind, lookahead: int, drops: bool = True
) -> Statement:
    """``drops``: the hit does not serve its lookahead blocks."""
    boundary = at.integer("boundary")
    block, token, block_size, held = _held(at)
    group, sizes = any_group(at, kind, lookahead)
    served = ("the hit serves the block", block < boundary)
    return Statement(
        (
            *sizes,
            *held,
            ("the block is in the required run", hits.in_required_run(group, block, boundary)),
            *((served,) if drops else ()),
        ),
        sharing.is_determined(token, 0, boundary * block_size),
    )


def _lookahead_block_determines(at: Interpretation, kind: GroupKind, lookahead: int) -> Statement:
    boundary, ahead = at.integer("boundary"), at.integer("lookahead_tokens")
    block, token, block_size, held = _held(at)
    group, sizes = any_group(at, kind, lookahead)
    last = hits.run_end(group, boundary) - 1
    dropped = attention.lookahead_blocks(ahead, block_size)
    return Statement(
        (
            *sizes,
            *held,
            ("the block is in the required run", hits.in_required_run(group, block, boundary)),
            ("the hit serves the block", block < boundary),
            ("the layer takes in one token after its own, or more", 1 <= ahead),
            ("it drops the blocks that these span", group.lookahead == dropped),
        ),
        sharing.is_determined(token, ahead, sharing.covered_tokens(last, block_size)),
    )


def _one_block_less_does_not(at: Interpretation, kind: GroupKind, lookahead: int) -> Statement:
    boundary, ahead = at.integer("boundary"), at.integer("lookahead_tokens")
    block_size = at.integer("block_size")
    group, sizes = any_group(at, kind, lookahead)
    last = hits.run_end(group, boundary) - 1
    dropped = attention.lookahead_blocks(ahead, block_size)
    agreed = sharing.covered_tokens(last, block_size) - block_size
    return Statement(
        (
            *sizes,
            ("a block holds at least one token", 1 <= block_size),
            ("the layer takes in one token after its own, or more", 1 <= ahead),
            ("the group drops the blocks that these span", group.lookahead == dropped),
        ),
        not_(sharing.is_determined(boundary * block_size - 1, ahead, agreed)),
    )


def _is_determined(at: Interpretation, final: bool) -> Statement:
    """``final``: the entries of the token are, and so they are determined; else they are not."""
    token, computed, ahead = at.integer("token"), at.integer("computed"), at.integer("ahead")
    known, end = at.integer("known"), sharing.final_tokens(computed, ahead)
    determined = sharing.is_determined(token, ahead, known)
    held = (
        ("the layer takes in one token after its own, or more", 1 <= ahead),
        ("tokens are counted from 0", 0 <= token),
        ("the token is computed", token < computed),
    )
    if final:
        step = "the step has sampled a token, or computed a part of what is known"
        sampled = ((step, computed < known), ("its entries are final", token < end))
        return Statement((*held, *sampled), determined)
    sampled = (
        ("only the sampled token is known", known == computed + 1),
        ("its entries are not final", end <= token),
    )
    return Statement((*held, *sampled), not_(determined))


def _equal_hashes_mean_equal_tokens(
    at: Interpretation, first: bool, chained: bool = True
) -> Statement:
    """``chained``: a hash is of the hash before, too."""
    block = at.integer("block")
    same_hash, same_tokens = at.block_set("same_hash"), at.block_set("same_tokens")
    before = for_all(0, block, same_tokens)
    link = ("hashes are chained and injective", sharing.is_chained(block, same_hash, same_tokens))
    if not chained:
        link = ("a hash is of the block alone", same_hash(block) == same_tokens(block))
    return Statement(
        (
            ("it is the first block", block == 0)
            if first
            else ("it is a later block, and the sentence holds of the one before", 1 <= block),
            ("the one before has it, if any", implies(same_hash(block - 1), before)),
            link,
            ("the hashes of the block are equal", same_hash(block)),
        ),
        for_all(0, block + 1, same_tokens),
    )


def _equal_tokens_mean_equal_hashes(at: Interpretation, first: bool) -> Statement:
    block = at.integer("block")
    same_hash, same_tokens = at.block_set("same_hash"), at.block_set("same_tokens")
    before = implies(for_all(0, block, same_tokens), same_hash(block - 1))
    return Statement(
        (
            ("it is the first block", block == 0)
            if first
            else ("it is a later block, and the sentence holds of the one before", before),
            ("blocks are counted from 0", 0 <= block),
            ("hashes are chained", sharing.is_chained(block, same_hash, same_tokens)),
            ("all tokens up to the block's end are equal", for_all(0, block + 1, same_tokens)),
        ),
        same_hash(block),
    )


def _obligations() -> Iterable[Obligation]:
    alone = Mutant(
        "hash_of_the_block_alone",
        "So they are when a hash does not depend on the one before.",
        partial(_equal_hashes_mean_equal_tokens, first=False, chained=False),
    )
    for first, which in ((True, "first_block"), (False, "next_block")):
        yield Obligation(
            f"equal_hashes_mean_equal_tokens[{which}]",
            "When the hashes of a block are equal, so are all tokens up to its end. By induction "
            "over the blocks.",
            partial(_equal_hashes_mean_equal_tokens, first=first),
            () if first else (alone,),
        )
        yield Obligation(
            f"equal_tokens_mean_equal_hashes[{which}]",
            "When all tokens up to a block's end are equal, so are the hashes of the block. By "
            "induction over the blocks.",
            partial(_equal_tokens_mean_equal_hashes, first=first),
        )
    yield Obligation(
        "own_hash_vouches_for_target_layers",
        "The hash of a block covers the tokens that determine each entry in it, and each state as "
        "of a token in it, whichever request wrote them.",
        partial(_own_hash_suffices, reads_ahead=False),
    )
    yield Obligation(
        "hash_with_lookahead_vouches_for_draft_layers",
        "The hash of a block that covers the lookahead tokens determines each entry of a draft "
        "layer in it, whichever request wrote it.",
        partial(_own_hash_suffices, reads_ahead=True),
    )
    yield Obligation(
        "final_entries_are_determined",
        "When a step ends, the known tokens determine the entries of draft layers that count as "
        "final, however many tokens ahead the layers look.",
        partial(_is_determined, final=True),
    )
    yield Obligation(
        "later_entries_are_not_final",
        "Where the step computed all that was known, later entries depend on drafts.",
        partial(_is_determined, final=False),
    )
    for kind, lookahead in CASES:
        state = partial(_hit_determines, kind=kind, lookahead=lookahead)
        served = Mutant(
            "lookahead_block_is_served",
            "So it is when the lookahead block is not dropped.",
            partial(state, drops=False),
        )
        yield Obligation(
            case_name("hit_determines_target_layers", kind, lookahead),
            "What a hit reuses in target layers is determined by the tokens of the hit.",
            state,
            (served,) if lookahead else (),
        )
        if lookahead:
            yield Obligation(
                case_name("lookahead_block_vouches_for_draft_layers", kind, lookahead),
                "When one request wrote the blocks of a required run, the hash of the last one, "
                "a lookahead block, determines all that the hit reuses in draft layers, however "
                "many tokens ahead they look.",
                partial(_lookahead_block_determines, kind=kind, lookahead=lookahead),
            )
            yield Obligation(
                case_name("one_lookahead_block_less_does_not", kind, lookahead),
                "A run one block shorter does not determine the last entry before the hit's end.",
                partial(_one_block_less_does_not, kind=kind, lookahead=lookahead),
            )


OBLIGATIONS = {"reused_content_is_determined_by_the_hit": tuple(_obligations())}
"""The obligations of the claim on sharing, by its name."""
