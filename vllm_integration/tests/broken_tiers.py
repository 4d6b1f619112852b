"""What the checks of tiers show of the target's offloading scheduler with one line changed.

Run in a process of its own with the target on its path; writes the codes that each change shows.
"""

import json
import sys
from importlib import import_module

from hitproof.conformance.checks.tiers import check_tier_lookup, check_tier_masks
from hitproof.conformance.scope.layouts import offloaded
from hitproof.conformance.scope.profiles import Profile
from hitproof.vllm_integration.adapter.subject import VllmSubject

_V1 = "vllm.distributed.kv_transfer.kv_connector.v1."
_DROP = "num_hit_chunks -= 1\n                        eagle_verified.add(group_idx)"
_MISS = "                case LookupResult.MISS:\n                    "

FAULTS = {
    "no chunk is asked for past the hit": (
        "                        max_hit_size_tokens + tokens_per_chunk,\n",
        "                        max_hit_size_tokens,\n",
        "tier-hit-too-short",
    ),
    "the chunk past the hit is dropped twice": (
        _DROP,
        _DROP.replace("1", "2"),
        "tier-hit-too-short",
    ),
    "the chunk past the hit is not dropped": (
        _DROP,
        _DROP.replace("1", "0"),
        "tier-hit-lacks-block(block=lookahead)",
    ),
    "a window is as long with draft layers": (
        "                        required_window += 1\n",
        "                        required_window += 0\n",
        "tier-hit-lacks-block(block=required)",
    ),
    "what is stored has no chunk past a hit": (
        "use_eagle=group_config.is_eagle_group,\n            retention",
        "use_eagle=False,\n            retention",
        "tier-block-left-out(block=lookahead, mask=store, tier=offloading)",
    ),
    "a prefix goes on past a miss": (
        _MISS + "break\n        return hit_count",
        _MISS + "pass\n        return hit_count",
        "tier-hit-lacks-block(block=required)",
    ),
    "a window goes on past a miss": (
        _MISS + "consecutive_hits = 0",
        _MISS + "consecutive_hits += 0",
        "tier-hit-lacks-block(block=required)",
    ),
    "a chunk has the key of its first tokens": (
        "                + group_config.hashes_per_chunk\n                - 1,",
        "                ,",
        "tier-block-left-out(block=prefix, mask=store, tier=offloading)",
    ),
    "all groups have the keys of the first": (
        "key = make_offload_key(req_block_hash, group_config.group_idx)",
        "key = make_offload_key(req_block_hash, 0)",
        "tier-block-left-out(block=tail, mask=store, tier=offloading)",
    ),
    "a load begins at the first block of a chunk": (
        "            block_indices.append(load_start_gpu_block_idx)",
        "            block_indices.append(0)",
        "tier-block-not-loaded(block=prefix, tier=offloading)",
    ),
    "a store takes the blocks of other chunks": (
        "            gpu_block_idx = chunk_idx * blocks_per_chunk\n",
        "            gpu_block_idx = chunk_idx\n",
        "raises-exception",
    ),
    "what is stored is counted in chunks": (
        "start_block=start_chunk_idx * blocks_per_chunk,",
        "start_block=start_chunk_idx,",
        "tier-block-left-out(block=tail, mask=store, tier=offloading)",
    ),
    "the next chunk is taken for stored": (
        "                    group_state.next_stored_chunk_idx, num_chunks\n",
        "                    group_state.next_stored_chunk_idx, num_chunks + 1\n",
        "tier-block-left-out(block=prefix, mask=store, tier=offloading)",
    ),
}
"""One line of the target each: what it is, what it becomes, and how what is found begins."""


def shown(subject: VllmSubject) -> set[str]:
    """What the target shows."""
    found = set()
    for layout in offloaded(Profile.QUICK):
        for check in (check_tier_lookup, check_tier_masks):
            found |= {str(each.signature.defect) for each in check(subject, layout).evidence}
    return found


def main(wanted: list[str]) -> None:
    """Put each of the faults in turn into the target."""
    module = import_module(f"{_V1}offloading.scheduler")
    connector = import_module(f"{_V1}offloading_connector")
    assert module.__file__ is not None
    with open(module.__file__, encoding="utf-8") as file:
        text = file.read()

    def put(changed: str) -> None:
        exec(compile(changed, str(module.__file__), "exec"), vars(module))
        vars(connector)["OffloadingConnectorScheduler"] = module.OffloadingConnectorScheduler

    subject = VllmSubject(frozenset())
    made = {"none": sorted(shown(subject))}
    for name, (old, new, start) in FAULTS.items():
        if wanted and name not in wanted:
            continue
        assert text.count(old) == 1, name
        put(text.replace(old, new))
        made[name] = [each for each in shown(subject) if each.startswith(start)]
    print(f"\nfound {json.dumps(made)}")


if __name__ == "__main__":
    main(sys.argv[1:])
