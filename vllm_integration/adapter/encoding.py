"""An encoder cache connector that has no image, beside the encoder of a scheduler history.

vLLM imports it by the name of this module. Imported in the worker process only.
"""

from typing import Any

from vllm.distributed.ec_transfer.ec_connector.base import ECConnectorBase, ECConnectorMetadata

ENCODING = {"ec_connector": "EncodingConnector", "ec_connector_module_path": __name__}
"""Where vLLM finds it."""


class EncodingConnector(ECConnectorBase):  # type: ignore[misc]  # untyped vLLM
    """The scheduler's half: every image is encoded here, and no end has to wait for it."""

    def has_cache_item(self, identifier: str) -> bool:
        """It has none."""
        del identifier
        return False

    def has_caches(self, request: Any) -> list[bool]:
        """The same of all images of a request, as early releases ask."""
        return [False] * len(request.mm_features)

    def update_state_after_alloc(self, request: Any, index: int) -> None:
        """An image is encoded."""

    def build_connector_meta(self, scheduler_output: Any) -> Any:
        """Nothing for workers, as there are none."""
        del scheduler_output
        return ECConnectorMetadata()

    def request_finished(self, request: Any) -> tuple[bool, dict[str, Any] | None]:
        """Nothing is sent, so that nothing is held."""
        del request
        return False, None

    def start_load_caches(self, encoder_cache: Any, **kwargs: Any) -> None:
        """A worker's."""

    def save_caches(self, encoder_cache: Any, mm_hash: str, **kwargs: Any) -> None:
        """A worker's."""
