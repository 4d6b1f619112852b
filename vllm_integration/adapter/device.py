"""The device that engines are set up for where there is none: a platform that only answers.

Imported in the worker process only.
"""

import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace
from typing import Any

DEVICE = "a GPU of compute capability 9.0 with 80 GiB"
"""What the platform says that it is, in words."""
_UNUSED = ("torchvision",)
_BLOCK_SIZE = 16
_MEMORY = 80 << 30
_BACKENDS = "vllm.v1.attention.backends."
_FLASH = _BACKENDS + "flash_attn.FlashAttentionBackend"
_TRITON = _BACKENDS + "triton_attn.TritonAttentionBackend"
_LATENT = _BACKENDS + "mla.triton_mla.TritonMLABackend"
_SPARSE = _BACKENDS + "mla.flashmla_sparse.FlashMLASparseBackend"


def _is_packed(dtype: str | None) -> bool:
    return dtype is not None and dtype.startswith("fp8")


class NoPrefill(SimpleNamespace):
    """A backend for the prefill of latent attention that is never run."""

    @staticmethod
    def get_name() -> str:
        """What logs call it."""
        return "NONE"


def set_up_device() -> None:
    """Let the target find `DEVICE`.

    It is a platform of its own, as plugins of vLLM have them (``PlatformEnum.OOT``), since
    importing the one of CUDA takes compiled operators. How block sizes are aligned with backends
    and Mamba pages is decided by ``Platform``, which that of CUDA inherits. A chosen attention
    backend is taken; else FlashAttention, and Triton's where the former's compiled code decides.
    """
    import torch
    from vllm import platforms
    from vllm.platforms.interface import DeviceCapability, Platform, PlatformEnum

    class Device(Platform):  # type: ignore[misc]  # the target is not known to mypy
        _enum = PlatformEnum.OOT
        device_name = device_type = "cuda"
        dispatch_key = "CUDA"
        supported_dtypes = (torch.bfloat16, torch.float16, torch.float32)

        @classmethod
        def get_device_capability(cls, device_id: int = 0) -> Any:
            return DeviceCapability(9, device_id)

        @classmethod
        def get_device_name(cls, device_id: int = 0) -> str:
            return f"device {device_id}"

        @classmethod
        def get_device_total_memory(cls, device_id: int = 0) -> int:
            return _MEMORY - device_id

        @classmethod
        def num_compute_units(cls, device_id: int = 0) -> int:
            return 132 - device_id

        @classmethod
        def current_device(cls) -> str:
            return "meta"

        @classmethod
        def support_hybrid_kv_cache(cls) -> bool:
            return True

        @classmethod
        def is_pin_memory_available(cls) -> bool:
            return False

        @classmethod
        def check_and_update_config(cls, vllm_config: Any) -> None:
            if vllm_config.cache_config.block_size is None:  # the platform decides, up to 0.16
                vllm_config.cache_config.block_size = _BLOCK_SIZE

        @classmethod
        def get_attn_backend_cls(cls, selected_backend: Any, *config: Any, **more: Any) -> str:
            if selected_backend is not None:
                return str(selected_backend.get_path())
            asked = more.get("attn_selector_config") or config[0]
            if asked.use_mla:
                return _SPARSE if asked.use_sparse else _LATENT
            return _TRITON if asked.has_sink or _is_packed(asked.kv_cache_dtype) else _FLASH

        @classmethod
        def get_mla_prefill_backend_cls(cls, mla_selector_config: Any) -> Any:
            del mla_selector_config
            return NoPrefill

    platforms._current_platform = Device()
    for name, module in list(sys.modules.items()):
        # Modules that were imported before have the former one under a name of their own.
        if name.startswith("vllm.") and "current_platform" in vars(module):
            vars(module)["current_platform"] = platforms._current_platform


class _Absent(ModuleType):
    """A module of a package that is not installed: whatever is asked of it is there, and empty."""

    __path__: list[str] = []  # noqa: RUF012 what makes a module a package

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class _Absence(MetaPathFinder, Loader):
    """Finds modules of packages that are not installed."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        del path, target
        return ModuleSpec(fullname, self) if fullname.partition(".")[0] in _UNUSED else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Absent(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing in it."""


def leave_out_unused() -> list[str]:
    """Let models be imported without packages that only prepare images; the names of those."""
    absent = [name for name in _UNUSED if find_spec(name) is None]
    if absent:
        sys.meta_path.append(_Absence())
    return absent
