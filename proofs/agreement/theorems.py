"""The three theorems that producer and consumer agree: see `proofs.agreement`."""

from hitproof.proofs.agreement.group import INTERVAL, LATEST
from hitproof.proofs.agreement.hits import promised_until_evicted
from hitproof.proofs.agreement.lookups import (
    NO_LESS_THAN_ON_THE_INTERVAL,
    ROUNDED_DOWN,
    SAME,
    promised_hit,
)
from hitproof.proofs.obligation import Obligation, chain


def _of_promises(mode: str) -> tuple[Obligation, ...]:
    return promised_hit(mode), promised_until_evicted(mode)


OBLIGATIONS: dict[str, tuple[Obligation, ...]] = {
    "lookup_agrees_under_dense_retention": chain(SAME),
    "lookup_agrees_under_interval_retention": chain(
        NO_LESS_THAN_ON_THE_INTERVAL, ROUNDED_DOWN, *_of_promises(INTERVAL)
    ),
    "lookup_agrees_under_latest_retention": chain(*_of_promises(LATEST)),
}
"""The obligations of each claim that producer and consumer agree, by its name."""
