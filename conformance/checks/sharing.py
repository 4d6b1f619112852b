"""The check of sharing: two block hashes are equal if and only if all that they cover is.

The hashes of many small prompts, with and without cache salt and LoRA adapter, with images, and as
embeddings in whole or in part, with tokens generated after them, are compared pairwise: for a
group whose blocks are as long as what one hash covers, for one with longer blocks, and with hashes
that look ahead where the subject has them.
"""

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import product

from hitproof.conformance.checks.outcomes import Case, CheckResult, finished
from hitproof.conformance.checks.pool import is_judged_once
from hitproof.conformance.findings.codes import Defect
from hitproof.conformance.findings.evidence import HashEvidence
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.scope.configurations import Configuration
from hitproof.conformance.subject.failures import CannotJudge, Predates
from hitproof.conformance.subject.hashing import HashSubject, Prompt
from hitproof.conformance.words import in_tokens
from hitproof.spec.claims import Divergence
from hitproof.spec.sharing import covered_tokens

_CLAIM = "reused_content_is_determined_by_the_hit"
_BLOCKS = 3
_SIZES = ((1, 1), (1, 2), (3, 3))
"""How many tokens a hash covers, and how many a block has."""
_HASH_LOOKAHEADS = (0, 1, 2)
_SALTS = ("", "x")
_ADAPTERS = (("", ""), ("x", "/x"), ("x", "/y"))


def check_sharing(subject: HashSubject, configuration: Configuration) -> CheckResult:
    """Judge block hashes, which all groups share: most configurations settle nothing."""
    if not is_judged_once(configuration):
        return CheckResult({}, (), 0, 0)
    return finished((_CLAIM,), partial(_cases, subject, configuration))


def _cases(subject: HashSubject, configuration: Configuration) -> Iterator[Case]:
    for (unit, block_size), lookahead in product(_SIZES, _HASH_LOOKAHEADS):
        hashes = partial(_hashes, subject, unit=unit, block_size=block_size, lookahead=lookahead)
        evidence: list[HashEvidence] = []
        told_apart: dict[tuple[int, Prompt], tuple[bytes, Prompt]] = {}
        owners: dict[tuple[int, bytes], tuple[Prompt, Prompt]] = {}
        length = _BLOCKS * block_size + lookahead
        prompts = [*(_prompts(length) if unit == 1 else ()), *_generated(length)]
        try:
            hashes(prompts[0])
        except Predates:
            if lookahead:
                continue  # a subject without hashes that look ahead
            raise
        mixed = list(_mixed(length))
        with suppress(Predates):
            hashes(mixed[0])
            prompts += mixed
        for prompt in prompts:
            found = hashes(prompt)
            for block, block_hash in enumerate(found):
                agreed = covered_tokens(block, block_size, lookahead)
                content = prompt.agreed(agreed)
                known_hash, first = told_apart.setdefault((block, content), (block_hash, prompt))
                known_content, other = owners.setdefault((block, block_hash), (content, prompt))
                same = known_content.as_generated() == content.as_generated()
                if known_hash != block_hash or not same:
                    pair = (first if known_hash != block_hash else other), prompt
                    if [hashes(p) == hashes(p) for p in pair] != [True, True]:
                        raise CannotJudge("a prompt does not have the same hashes when asked again")
                    evidence.append(_evidence(configuration, pair, block, agreed, lookahead, unit))
        yield Case(len(prompts), len(prompts), evidence)


def _hashes(
    subject: HashSubject, prompt: Prompt, unit: int, block_size: int, lookahead: int
) -> list[bytes]:
    hashes = subject.block_hashes(prompt, unit, block_size, lookahead)
    if len(hashes) != _BLOCKS:
        raise CannotJudge(f"not all of the {_BLOCKS} blocks of a prompt have a hash")
    return hashes


def _prompts(length: int) -> Iterator[Prompt]:
    """Prompts of ``length`` tokens, the plain ones first."""
    for adapter, salt in product(_ADAPTERS, _SALTS):
        for tokens in product((0, 1), repeat=length):
            yield Prompt(tokens, salt, adapter)
    plain = (0,) * length
    for other in range(length + 1):
        yield Prompt(plain, embeddings=_odd(length, other, 1))
    for salt, adapter in product(_SALTS, _ADAPTERS[1:]):
        yield Prompt(plain, salt, adapter, embeddings=plain)
    for first, (name, following) in product(range(length), product("xy", repeat=2)):
        images = (name, first, 1), (following, first + 1, 1)
        yield Prompt(plain, images=images[:1])
        yield Prompt(plain, images=images[: length - first])
    yield Prompt(plain, images=(("long", 0, length),))


def _mixed(length: int) -> Iterator[Prompt]:
    """Prompts of which one token comes as an embedding, and another is odd or none is."""
    for place, value in product(range(length), (0, 1, 2)):
        embeddings = tuple(value * (at == place) for at in range(length))
        is_token_ids = tuple(at != place for at in range(length))
        for other in range(length + 1):
            if other != place:
                tokens = _odd(length, other)
                yield Prompt(tokens, embeddings=embeddings, is_token_ids=is_token_ids)


def _generated(length: int) -> Iterator[Prompt]:
    """Prompts that end in tokens which were generated.

    One token is odd, or an embedding before them; or the prompt ends with two images.
    """
    for count in range(1, length):
        rest = length - count
        for names in product("xy", repeat=2 if rest > 1 else 0):
            images = tuple((name, rest - 2 + at, 1) for at, name in enumerate(names))
            yield Prompt((0,) * length, images=images, num_generated=count)
        for place in range(rest + 1):
            embeddings = _odd(rest, place, 1)
            yield Prompt((0,) * length, embeddings=embeddings, num_generated=count)
        for place in range(rest, length):
            tokens = _odd(length, place)
            yield Prompt(tokens, num_generated=count)
            yield Prompt(tokens, embeddings=(1,) * rest, num_generated=count)


def _odd(length: int, place: int, base: int = 0) -> tuple[int, ...]:
    """Numbers that are all ``base`` but for the one at ``place``, which is one more."""
    return tuple(base + (at == place) for at in range(length))


def _evidence(
    configuration: Configuration,
    pair: tuple[Prompt, Prompt],
    block: int,
    agreed: int,
    lookahead: int,
    unit: int,
) -> HashEvidence:
    first, second = pair
    one, other = first.agreed(agreed), second.agreed(agreed)
    differing = [
        what
        for what, differs in (
            ("tokens", first.tokens[:agreed] != second.tokens[:agreed]),
            ("salts", first.salt != second.salt),
            ("adapters", first.adapter != second.adapter),
            ("images", one.images != other.images),
            ("embeddings", _embedded(one) != _embedded(other)),
        )
        if differs
    ]
    ahead = "lookahead" if lookahead else None
    if differing:
        divergence = Divergence.UNSOUND
        what = " and ".join(differing)
        inputs = "-".join(differing)
        defect = Defect.of(Code.HASH_COLLISION, hashes=ahead, inputs=inputs)
        spec, actual = f"{what} differ, so the hashes of block {block} do", "they are equal"
    else:
        divergence = Divergence.LOST_HIT
        defect = Defect.of(Code.HASH_MISMATCH, hashes=ahead)
        spec = f"the first {agreed} tokens are equal, so the hashes of block {block} are"
        actual = "they differ"
    covered, them = ("one token", "it") if unit == 1 else (in_tokens(unit), "them")
    covered += f" and the {lookahead} after {them}" if lookahead else ""
    size = len(first.tokens[: -lookahead or None]) // _BLOCKS
    return HashEvidence(
        signature=Signature(_CLAIM, divergence, "block_hash", False, defect),
        configuration=configuration,
        spec=spec,
        actual=actual,
        steps=(
            f"block size {size}; a hash is of {covered}, and of the hash before",
            *(f"request {name}: {_words(prompt)}" for name, prompt in zip("AB", pair, strict=True)),
        ),
        prompts=pair,
    )


def _embedded(prompt: Prompt) -> tuple[object, ...]:
    return prompt.embeddings, prompt.is_token_ids


def _words(prompt: Prompt) -> str:
    adapter = " at ".join(prompt.adapter) if any(prompt.adapter) else "none"
    tokens = " ".join(map(str, prompt.tokens))
    words = f"tokens {tokens}; salt {prompt.salt or 'none'}; LoRA adapter {adapter}"
    for name, offset, length in prompt.images:
        words += f"; image {name} at {offset}, of {in_tokens(length)}"
    if prompt.embeddings:
        words += f"; embeddings {' '.join(map(str, prompt.embeddings))}"
    if prompt.is_token_ids:
        places = (str(at) for at, is_id in enumerate(prompt.is_token_ids) if not is_id)
        words += f", which count at {' and '.join(places)} only"
    if prompt.num_generated:
        words += f"; the last {in_tokens(prompt.num_generated)} generated"
    return words
