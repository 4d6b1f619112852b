"""Which tokens of a request are no longer read, for all lengths, windows and chunks."""

from collections.abc import Iterator
from typing import Any

from hitproof.proofs.unbounded.proving import Conclusion
from hitproof.proofs.unbounded.source import Unsupported
from hitproof.proofs.unbounded.terms import Arithmetic
from hitproof.proofs.unbounded.values import is_number
from hitproof.spec.attention import attends, reads_state
from hitproof.spec.groups import GroupKind
from hitproof.spec.terms import Formula, Term, implies, not_


def skips_right(
    kind: GroupKind, computed: Term, skipped: Term, token: Term, limit: Term, extra: Term = 0
) -> Formula:
    """Whether a token is skipped if and only if the next one to be computed does not read it.

    ``computed`` tokens are computed, at least 1, and ``token`` is one of them. ``limit`` is the
    window or the chunk. A window may keep ``extra`` more tokens.
    """

    def reads(window: Term) -> Formula:
        if kind is GroupKind.MAMBA:
            return reads_state(computed, token)
        if kind is GroupKind.CHUNKED_LOCAL:
            return attends(computed, token, None, limit)
        return attends(computed, token, window if kind is GroupKind.SLIDING_WINDOW else None)

    widest = None if limit is None else limit + extra
    is_skipped = token < skipped
    return implies(is_skipped, not_(reads(limit))) & implies(not_(is_skipped), reads(widest))


class AnySkipping:
    """Any request of a group of a kind, with as many computed tokens as one likes."""

    def __init__(self, here: Arithmetic, kind: GroupKind) -> None:
        self.here = here
        self.kind = kind
        self.computed: Term = here.atom("computed", 1)
        named = {GroupKind.SLIDING_WINDOW: "window", GroupKind.CHUNKED_LOCAL: "chunk"}.get(kind)
        self.limit: Any = None if named is None else here.atom(named, 1)
        self.extra: Term = here.atom("extra", 0) if kind is GroupKind.SLIDING_WINDOW else 0
        self.sizes: dict[str, Term] = {"computed": self.computed}
        if named is not None:
            self.sizes[named] = self.limit

    def conclusions(self, skipped: Any) -> Iterator[Conclusion]:
        """A token is skipped if and only if it is not read any more."""
        if not is_number(skipped):
            raise Unsupported(f"a number of tokens that is {skipped!r:.60}")
        here, token = self.here, self.here.position
        yield (
            "tokens are skipped if and only if they are not read any more",
            lambda: here.implies(
                (0 <= token) & (token < self.computed),
                skips_right(self.kind, self.computed, skipped, token, self.limit, self.extra),
            ),
        )
