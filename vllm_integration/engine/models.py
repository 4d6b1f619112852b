"""Tiny models, made on the spot from a config.json; their weights are drawn from a seed."""

import json
from enum import StrEnum
from pathlib import Path
from typing import Any

VOCABULARY = 256
"""Tokens in the vocabulary: few, so that an engine returns whole distributions."""
MAX_MODEL_LEN = 320
"""The longest request, in tokens."""
BLOCK_SIZE = 32
"""Tokens in a block of full attention: the smallest that the CPU's kernels are made for."""

_WINDOW = 64
_BASE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 0,
    "torch_dtype": "float32",
}
_LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
_WINDOWED = {
    "sliding_window": _WINDOW,
    "layer_types": ["sliding_attention", "full_attention"],
    "hidden_activation": "gelu_pytorch_tanh",
}


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


_CONFIGS: dict[Kind, dict[str, Any]] = {
    Kind.FULL: _LLAMA,
    Kind.WINDOW: _WINDOWED
    | {
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "query_pre_attn_scalar": 32,
    },
    Kind.MIXED: _WINDOWED
    | {
        "architectures": ["Gemma4ForCausalLM"],
        "model_type": "gemma4_text",
        "global_head_dim": 64,
        "hidden_size_per_layer_input": 0,
        "vocab_size_per_layer_input": VOCABULARY,
        "num_kv_shared_layers": 0,
        "enable_moe_block": False,
        "attention_k_eq_v": False,
    },
    Kind.HYBRID: {
        "architectures": ["GraniteMoeHybridForCausalLM"],
        "model_type": "granitemoehybrid",
        "layer_types": ["mamba", "attention"],
        "mamba_n_heads": 4,
        "mamba_d_head": 32,
        "mamba_n_groups": 1,
        "mamba_d_state": 16,
        "mamba_d_conv": 4,
        "mamba_expand": 2,
        "mamba_chunk_size": 32,
        "num_local_experts": 0,
        "num_experts_per_tok": 0,
        "shared_intermediate_size": 96,
        "position_embedding_type": "rope",
    },
    Kind.ADAPTERS: _LLAMA,
}
_DRAFT = _LLAMA | {"num_hidden_layers": 1}
_BLOCKS = {
    Kind.FULL: 20,
    Kind.WINDOW: 30,
    Kind.MIXED: 26,
    Kind.HYBRID: 18,
    Kind.ADAPTERS: 20,
}
"""The pool in blocks: more than the longest request takes, less than a batch wants."""

EAGLE_KINDS = (Kind.FULL, Kind.WINDOW, Kind.MIXED)
"""Models that run with EAGLE on the CPU: its kernels of Mamba take no drafts."""


def write_model(kind: Kind, eagle: bool, place: Path) -> dict[str, Any]:
    """Write the model's configuration below ``place``; the arguments of ``vllm.LLM`` for it."""
    arguments: dict[str, Any] = {
        "model": _write(_CONFIGS[kind], place / kind),
        "block_size": BLOCK_SIZE,
        "max_model_len": MAX_MODEL_LEN,
        "max_num_batched_tokens": 128,
        "max_num_seqs": 6,
        "num_gpu_blocks_override": _BLOCKS[kind],
    }
    if eagle:
        draft = _write(_DRAFT, place / "draft")
        arguments["speculative_config"] = {
            "method": "eagle",
            "model": draft,
            "num_speculative_tokens": 2,
        }
    if kind is Kind.ADAPTERS:
        arguments |= {"enable_lora": True, "max_lora_rank": 8, "max_loras": 1}
    return arguments


def _write(config: dict[str, Any], place: Path) -> str:
    place.mkdir(parents=True)
    (place / "config.json").write_text(json.dumps(_BASE | config))
    return str(place)
