"""Tiny models, made on the spot from ``models.toml``; their weights are drawn from a seed."""

import json
import tomllib
from enum import StrEnum
from pathlib import Path
from typing import Any

_MODELS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
VOCABULARY: int = _MODELS["base"]["vocab_size"]
"""Tokens in the vocabulary: few, so that an engine returns whole distributions."""
MAX_MODEL_LEN = 320
"""The longest request, in tokens."""
BLOCK_SIZE = 32
"""Tokens in a block of full attention: the smallest that the CPU's kernels are made for."""


class Kind(StrEnum):
    """What layers a model has."""

    FULL = "full"
    """Full attention. As Llama."""
    WINDOW = "window"
    """Full attention and a sliding window, with equal block sizes. As Gemma 3."""
    MIXED = "mixed"
    """The same with different block sizes, since head sizes differ. As Gemma 4."""
    HYBRID = "hybrid"
    """Full attention and Mamba-2. As Granite 4."""
    ADAPTERS = "adapters"
    """Full attention; some requests use a LoRA adapter, and others a cache salt of its name."""


EAGLE_KINDS = (Kind.FULL, Kind.WINDOW, Kind.MIXED)
"""Models that run with EAGLE on the CPU: its kernels of Mamba take no drafts."""


def write_model(kind: Kind, eagle: bool, place: Path) -> dict[str, Any]:
    """Write the model's configuration below ``place``; the arguments of ``vllm.LLM`` for it."""
    arguments: dict[str, Any] = {
        "model": _write(kind, place),
        "block_size": BLOCK_SIZE,
        "max_model_len": MAX_MODEL_LEN,
        "max_num_batched_tokens": 128,
        "max_num_seqs": 6,
        "num_gpu_blocks_override": _MODELS[kind]["blocks"],
    }
    if eagle:
        draft = _write("draft", place)
        arguments["speculative_config"] = {
            "method": "eagle",
            "model": draft,
            "num_speculative_tokens": 2,
        }
    if kind is Kind.ADAPTERS:
        arguments |= {"enable_lora": True, "max_lora_rank": 8, "max_loras": 1}
    return arguments


def _write(name: str, place: Path) -> str:
    (place / name).mkdir(parents=True)
    config = {key: each for key, each in _MODELS[name].items() if key != "blocks"}
    (place / name / "config.json").write_text(json.dumps(_MODELS["base"] | config))
    return str(place / name)
