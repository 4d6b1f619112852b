"""A KV connector that has the prefixes which a scheduler history says it has.

vLLM imports it by the name of this module. Imported in the worker process only.
"""

from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    SupportsHMA,
)


class LoadingConnector(KVConnectorBase_V1, SupportsHMA):  # type: ignore[misc]  # untyped vLLM
    """The scheduler's half; what a worker would do is up to whoever steps the scheduler.

    Attributes:
        tokens: how many tokens it has of each request; each is loaded once.
        asked: what it was asked to load since this was last emptied: the first and the last token,
            and the tables of all groups.
    """

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        self.tokens: dict[str, int] = {}
        self.asked: dict[str, tuple[int, int, Any]] = {}
        self._start: dict[str, int] = {}

    def get_num_new_matched_tokens(
        self, request: Any, num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        """What it has beyond the local hit."""
        self._start[request.request_id] = num_computed_tokens
        more = self.tokens.get(request.request_id, 0) - num_computed_tokens
        return max(more, 0), more > 0

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """The load begins."""
        name = request.request_id
        if num_external_tokens:
            self.tokens.pop(name)
            start = self._start[name]
            self.asked[name] = start, start + num_external_tokens, blocks.get_block_ids()

    def build_connector_meta(self, scheduler_output: Any) -> Any:
        """Nothing for workers, as there are none."""
        del scheduler_output
        return KVConnectorMetadata()

    def request_finished_all_groups(
        self, request: Any, block_ids: Any
    ) -> tuple[bool, dict[str, Any] | None]:
        """Nothing is sent."""
        del request, block_ids
        return False, None

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """A worker's."""

    def wait_for_layer_load(self, layer_name: str) -> None:
        """A worker's."""

    def save_kv_layer(self, *_: Any, **__: Any) -> None:
        """A worker's."""

    def wait_for_save(self) -> None:
        """A worker's."""
