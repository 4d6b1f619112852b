"""A KV connector that has the prefixes which a scheduler history says it has.

vLLM imports it by the name of this module. Imported in the worker process only.
"""

from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    SupportsHMA,
)
from vllm.v1.request import RequestStatus


class OneTableConnector(KVConnectorBase_V1):  # type: ignore[misc]  # untyped vLLM
    """The scheduler's half, for one group. What its worker would do is done beside the scheduler.

    Attributes:
        tokens: how many tokens it has of each request; each is loaded once.
        asked: what it was asked to load since this was last emptied: the first and the
            last token, and the tables of all groups.
        at_once: requests whose first step loads what it has of them.
        sends: requests whose blocks it sends when they finish.
        ended: the tables of those that it began to send since this was last emptied.
        refuses: whether it answers that it could not forget what it has.
    """

    # Tests of findings have its source, too, so that it uses nothing of ours.

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        self.tokens: dict[str, int] = {}
        self.asked: dict[str, tuple[int, int, Any]] = {}
        self.at_once: set[str] = set()
        self.sends: set[str] = set()
        self.ended: dict[str, Any] = {}
        self.refuses = False
        self._start: dict[str, int] = {}

    def get_num_new_matched_tokens(
        self, request: Any, num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        """What it has beyond the local hit."""
        name = request.request_id
        self._start[name] = num_computed_tokens
        at_once = name in self.at_once
        # A step computes a token at least.
        most = request.num_tokens - at_once
        more = min(self.tokens.get(name, 0), most) - num_computed_tokens
        return max(more, 0), more > 0 and not at_once

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """The load begins."""
        name = request.request_id
        if num_external_tokens:
            self.tokens.pop(name, None)
            start = self._start[name]
            end = start + num_external_tokens
            self.asked[name] = start, end, blocks.get_block_ids()

    def build_connector_meta(self, scheduler_output: Any) -> Any:
        """Nothing for workers, as there are none."""
        del scheduler_output
        return KVConnectorMetadata()

    def request_finished(self, request: Any, block_ids: Any) -> tuple[bool, dict[str, Any] | None]:
        """It sends the blocks of the one group."""
        return self._finished(request, (block_ids,)), None

    def _finished(self, request: Any, block_ids: Any) -> bool:
        """What has all of its output is sent; blocks are held until then."""
        name = request.request_id
        whole = RequestStatus.FINISHED_LENGTH_CAPPED
        sent = name in self.sends and request.status == whole
        if sent:
            self.ended[name] = block_ids
        return sent

    def reset_cache(self) -> bool | None:
        """What it has of all requests is of old weights."""
        if self.refuses:
            return False
        self.tokens.clear()
        return True

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """A worker's."""

    def wait_for_layer_load(self, layer_name: str) -> None:
        """A worker's."""

    def save_kv_layer(self, *_: Any, **__: Any) -> None:
        """A worker's."""

    def wait_for_save(self) -> None:
        """A worker's."""


class LoadingConnector(OneTableConnector, SupportsHMA):  # type: ignore[misc]  # untyped vLLM
    """The same for any number of groups."""

    def request_finished_all_groups(
        self, request: Any, block_ids: Any
    ) -> tuple[bool, dict[str, Any] | None]:
        """It sends the blocks of all groups."""
        return self._finished(request, block_ids), None
