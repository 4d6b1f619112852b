"""The two managers that are compared: the reference, and the one of a real vLLM release.

Both have vLLM's interface, so that one benchmark drives either.
"""

import os
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from hitproof.conformance.emulation.managers import EmulatedManager
from hitproof.conformance.emulation.releases import VLLM_0_23
from hitproof.reference.groups import Configuration
from hitproof.reference.request import Request
from hitproof.spec.groups import Group, alignment
from hitproof.vllm_integration.adapter.groups import kv_cache_config, kv_cache_spec
from hitproof.vllm_integration.adapter.inspection import attribute, call
from hitproof.vllm_integration.targets.resolving import resolve

_REQUEST_ID = "benchmark"


class Side(NamedTuple):
    """A manager with an empty cache, and a request that is new to it."""

    manager: Any
    request: Any


def reference_side(groups: Sequence[Group], block_size: int, num_tokens: int) -> Side:
    """The reference under the policies of vLLM 0.23, with room for one request."""
    given = Configuration(
        tuple(groups),
        _num_blocks(groups, num_tokens),
        num_tokens,
        block_size,
        alignment(groups),
        num_tokens,
    )
    request = Request(_REQUEST_ID, range(num_tokens), block_size)
    return Side(EmulatedManager(VLLM_0_23, given), request)


class Vllm:
    """The managers of a release, which is imported into this process; one release a process."""

    def __init__(self, release: str) -> None:
        root = resolve(release).root
        if root is not None:
            sys.path.insert(0, str(root))
        # Its log would go to standard output.
        os.environ.setdefault("VLLM_CONFIGURE_LOGGING", "0")
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        # The whole manager first: imported alone, its parts run into circular imports.
        import vllm.v1.core.kv_cache_manager as kv_cache_manager
        from vllm.utils.hashing import sha256
        from vllm.v1 import kv_cache_interface, request
        from vllm.v1.core import kv_cache_utils

        attribute(kv_cache_utils, "init_none_hash")(sha256)
        self._manager_class = attribute(kv_cache_manager, "KVCacheManager")
        self._request_class = attribute(request, "Request")
        self._block_hasher = attribute(kv_cache_utils, "get_request_block_hasher")
        self._hash_function = sha256
        self._interface = kv_cache_interface

    def side(self, groups: Sequence[Group], block_size: int, num_tokens: int) -> Side:
        """The release's manager, with room for one request."""
        from vllm.sampling_params import SamplingParams

        specs = [(group, kv_cache_spec(self._interface, group)) for group in groups]
        num_blocks = _num_blocks(groups, num_tokens)
        with kv_cache_config(self._interface, specs, num_blocks, None) as config:
            manager = call(
                self._manager_class,
                {
                    "kv_cache_config": config,
                    "max_model_len": num_tokens,
                    "scheduler_block_size": alignment(groups),
                    "hash_block_size": block_size,
                    "max_num_batched_tokens": num_tokens,
                    "max_in_flight_tokens": num_tokens,
                    "enable_caching": True,
                    "use_eagle": False,
                },
                "KVCacheManager",
            )
        request = call(
            self._request_class,
            {
                "request_id": _REQUEST_ID,
                "prompt_token_ids": list(range(num_tokens)),
                "sampling_params": SamplingParams(max_tokens=1),
                "pooling_params": None,
                "eos_token_id": None,
                "block_hasher": self._block_hasher(block_size, self._hash_function),
                "arrival_time": 0.0,
            },
            "Request",
        )
        return Side(manager, request)


def _num_blocks(groups: Sequence[Group], num_tokens: int) -> int:
    """Blocks for the request in every group, and the null block."""
    return 1 + sum(-(-num_tokens // group.block_size) for group in groups)
