"""Weights of the tiny models, drawn from their names: every token that is read moves the logits.

vLLM's own dummy weights are too small for that. Imports vLLM, so it is for the engine's process.
"""

import json
import zlib
from pathlib import Path
from typing import Any

import torch
from vllm.model_executor.model_loader import register_model_loader
from vllm.model_executor.model_loader.base_loader import BaseModelLoader

LOAD_FORMAT = "hitproof_seeded"


def register() -> None:
    """Make vLLM know the loader, as `LOAD_FORMAT`."""
    methods = {"download_model": _nothing, "load_weights": _load}
    register_model_loader(LOAD_FORMAT)(type("SeededLoader", (BaseModelLoader,), methods))


def write_adapter(place: Path, layers: int, hidden: int, heads: int) -> str:
    """Write a LoRA adapter of all query projections below ``place``; the directory.

    ``hidden`` is the size of the model's hidden states, ``heads`` that of all query heads.
    """
    from safetensors.torch import save_file

    place.mkdir(parents=True)
    rank = 8
    config = {
        "peft_type": "LORA",
        "r": rank,
        "lora_alpha": 2 * rank,
        "target_modules": ["q_proj", "v_proj"],
        "bias": "none",
    }
    (place / "adapter_config.json").write_text(json.dumps(config))
    tensors = {}
    for layer in range(layers):
        for name, size in (("q_proj", heads), ("v_proj", heads // 2)):
            before = f"base_model.model.model.layers.{layer}.self_attn.{name}"
            tensors[f"{before}.lora_A.weight"] = _matrix(f"A{layer}{name}", (rank, hidden))
            tensors[f"{before}.lora_B.weight"] = _matrix(f"B{layer}{name}", (size, rank))
    save_file(tensors, place / "adapter_model.safetensors")
    return str(place)


def _nothing(loader: Any, model_config: Any) -> None:
    """There is nothing to download."""


def _load(loader: Any, model: Any, model_config: Any) -> None:
    """Draw each parameter of the model."""
    del loader, model_config
    kind = type(model).__name__
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(_drawn(f"{kind}.{name}", tuple(parameter.shape)).to(parameter.dtype))


def _drawn(name: str, shape: tuple[int, ...]) -> torch.Tensor:
    if name.endswith(".A"):  # how fast a state of Mamba decays
        return -0.02 - 0.3 * torch.rand(shape, generator=_generator(name))
    if len(shape) == 1:
        middle = 1.0 if "norm" in name else 0.0
        return middle + 0.2 * torch.randn(shape, generator=_generator(name))
    if "embed" in name:
        return torch.randn(shape, generator=_generator(name))
    return _matrix(name, shape)


def _matrix(name: str, shape: tuple[int, ...]) -> torch.Tensor:
    """A matrix that keeps the size of what it is applied to."""
    return torch.randn(shape, generator=_generator(name)) / shape[-1] ** 0.5


def _generator(name: str) -> torch.Generator:
    return torch.Generator().manual_seed(zlib.crc32(name.encode()))
