"""What stands in for objects of the target that cannot be made without a device or a model.

Where the target reads what one of them lacks, that is a limit of hitproof
(`conformance.subject.failures`). Imported in the worker process only.
"""

from functools import cache
from types import SimpleNamespace
from typing import Any

from hitproof.vllm_integration.adapter.inspection import attribute


class StandIn(SimpleNamespace):
    """An object with these attributes only, in the place of what ``stands_for`` names."""

    def __init__(self, stands_for: str, **values: Any) -> None:
        super().__init__(stands_for=stands_for, **values)


class ModelFacts:
    """What a scheduler asks of ``ModelConfig``, which inspects models by compiled operators.

    It is a model of text that generates; questions of yes or no that only a model can answer are
    answered with no.
    """

    stands_for = "ModelConfig"
    runner_type = "generate"
    skip_tokenizer_init = True
    hf_overrides = None
    multimodal_config = None
    logits_processors = None
    architectures: tuple[str, ...] = ()

    def __init__(self, max_model_len: int) -> None:
        self.max_model_len = max_model_len
        self.original_max_model_len = max_model_len

    def get_total_num_kv_heads(self) -> int:
        """As many as the specs of groups have (`adapter.groups`)."""
        return 1

    def __getattr__(self, name: str) -> bool:
        if name.startswith(
            ("is_", "uses_", "use_", "supports_", "has_", "requires_", "return_", "enable_")
        ):
            return False
        raise AttributeError(f"ModelConfig.{name}", name=name, obj=self)


def model_config(max_model_len: int) -> Any:
    """The target's own ``ModelConfig`` with its defaults, and `ModelFacts` where it inspects."""
    made = _model_config_class()(max_model_len)
    for name, field in type(made).__pydantic_fields__.items():
        if name not in vars(made) and name not in vars(ModelFacts) and not field.is_required():
            setattr(made, name, field.get_default(call_default_factory=True))
    return made


@cache
def _model_config_class() -> Any:
    from vllm import config

    return type("ModelFacts", (ModelFacts, attribute(config, "ModelConfig")), {})
