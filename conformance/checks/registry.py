"""The checks, one for each claim; some judge several claims at once."""

from collections.abc import Callable, Mapping
from typing import Any

from hitproof.conformance.checks.admission import check_admission, takes_part
from hitproof.conformance.checks.agreement import check_agreement, is_in_grid
from hitproof.conformance.checks.connector import check_local_prefix, is_judged
from hitproof.conformance.checks.fine_hits import check_fine, scales_of
from hitproof.conformance.checks.junctions import check_junctions
from hitproof.conformance.checks.lookup import check_common_hit, check_lookup
from hitproof.conformance.checks.mask import check_mask
from hitproof.conformance.checks.outcomes import CheckResult
from hitproof.conformance.checks.pool import check_pool, is_judged_once
from hitproof.conformance.checks.retention import check_retention
from hitproof.conformance.checks.sharing import check_sharing
from hitproof.conformance.checks.tiers import check_tier_lookup, check_tier_masks, has_tier
from hitproof.conformance.scope.configurations import Configuration
from hitproof.conformance.scope.layouts import Layout
from hitproof.conformance.subject.subjects import Subject
from hitproof.spec.retention import SPARSE_KINDS

CHECKS: dict[str, Callable[[Subject, Any], CheckResult]] = {
    "hit_has_every_block_attention_reads": check_lookup,
    "eagle_needs_tail_plus_one": check_lookup,
    "lookup_returns_longest_valid_hit": check_lookup,
    "common_hit_is_valid_for_every_group": check_common_hit,
    "common_hit_is_the_longest": check_common_hit,
    "local_prefix_lacks_states_only": check_local_prefix,
    "local_prefix_is_the_longest": check_local_prefix,
    "mask_keeps_every_reachable_block": check_mask,
    "mask_keeps_only_reachable_blocks": check_mask,
    "retention_keeps_resends_and_extensions": check_retention,
    "retention_keeps_siblings": check_retention,
    "retention_keeps_junctions": check_junctions,
    "lookup_agrees_under_dense_retention": check_agreement,
    "lookup_agrees_under_interval_retention": check_agreement,
    "lookup_agrees_under_latest_retention": check_agreement,
    "fine_grained_hit_is_vouched_for": check_fine,
    "retention_keeps_only_promised_blocks": check_retention,
    "reused_content_is_determined_by_the_hit": check_sharing,
    "block_in_use_is_never_evicted": check_pool,
    "free_count_is_free_queue_length": check_pool,
    "null_block_is_never_served": check_pool,
    "cached_key_names_its_content": check_pool,
    "least_recently_used_block_goes_first": check_pool,
    "admitted_request_gets_its_blocks": check_admission,
    "tier_keeps_every_reachable_block": check_tier_masks,
    "tier_keeps_only_reachable_blocks": check_tier_masks,
    "tier_hit_is_the_longest": check_tier_lookup,
    "tier_loads_the_served_run": check_tier_masks,
}
"""The check of each claim, by the claim's name."""

_OF_TIERS = (check_tier_lookup, check_tier_masks)

_SETTLES: Mapping[Callable[[Subject, Any], CheckResult], Callable[[Configuration], object]] = {
    check_admission: takes_part,
    check_fine: scales_of,
    check_junctions: lambda configuration: configuration.group.kind in SPARSE_KINDS,
    check_pool: is_judged_once,
    check_retention: lambda configuration: configuration.group.kind in SPARSE_KINDS,
    check_sharing: is_judged_once,
}
"""Where the checks that settle nothing on most configurations do settle something."""


def is_about(claim: str, judged: Configuration | Layout) -> bool:
    """Whether the claim's check settles something there: on one group, or a layout of several.

    Groups whose blocks several ranks share are looked up and registered like others.
    """
    if isinstance(judged, Layout):
        if judged.tier and CHECKS[claim] not in _OF_TIERS:
            return False
        if CHECKS[claim] is check_agreement:
            return is_in_grid(judged)
        if CHECKS[claim] in _OF_TIERS:
            return has_tier(judged)
        for_connector = CHECKS[claim] is check_local_prefix and is_judged(judged)
        return for_connector or CHECKS[claim] is check_common_hit
    if judged.ranks != (1, 1):
        return CHECKS[claim] in (check_lookup, check_mask)
    if CHECKS[claim] in (check_agreement, check_common_hit, check_local_prefix, *_OF_TIERS):
        return False
    settles = _SETTLES.get(CHECKS[claim])
    return settles is None or bool(settles(judged))
