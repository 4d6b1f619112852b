"""The states that the target's second model runner goes on from, by its own kernels.

They decide from tokens and blocks in which column of a request's table its state is, before and
after a step, and copy it. Here they run as plain functions on the CPU, and no state is copied.
vLLM: ``MambaHybridModelState`` and ``mamba_utils``. Imported in the worker process only.
"""

import inspect
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np

from hitproof.conformance.subject.schedulers import Scheduled
from hitproof.vllm_integration.adapter.inspection import attribute

_MODEL = "vllm.v1.worker.gpu.model_states.mamba_hybrid"
_UTILS = "vllm.v1.worker.mamba_utils"
_BEFORE, _COPIES, _AFTER = (
    "preprocess_mamba_align_fused_kernel",
    "precopy_mamba_align_fused_kernel",
    "postprocess_mamba_fused_kernel",
)
_COUNTED = "_scatter_num_accepted_kernel"
_COPY = "_copy_mamba_state_block"
_UNUSED = (
    *("state_base", "state_block", "state_elem", "state_inner", "state_conv", "state_group"),
    *("state_dim", "block_table_", "num_scheduled", "num_draft"),
)
"""What parameters begin with that only copies need, or that is known otherwise."""
_MOST = 256
"""Requests that a model runner has at once, at most."""


class _Pointer:
    """A place in an array, or several."""

    def __init__(self, array: Any, index: Any = 0) -> None:
        self.array, self.index = array, index

    def __add__(self, more: Any) -> "_Pointer":
        return _Pointer(self.array, self.index + more)


class _Language:
    """What the kernels use of Triton's language."""

    maximum = staticmethod(np.maximum)
    arange = staticmethod(np.arange)

    def __init__(self, program: int) -> None:
        self._program = program

    def program_id(self, axis: int) -> int:
        """Which request is dealt with, or which requests; one layer in one piece."""
        return 0 if axis else self._program

    @staticmethod
    def load(pointer: _Pointer, mask: Any = True, other: Any = 0) -> Any:
        """Read."""
        return np.where(mask, pointer.array[np.where(mask, pointer.index, 0)], other)

    @staticmethod
    def store(pointer: _Pointer, value: Any, mask: Any = True) -> None:
        """Write."""
        index, value, mask = np.broadcast_arrays(pointer.index, value, mask)
        pointer.array[index[mask]] = value[mask]


@cache
def has_kernels() -> bool:
    """Whether the model runner decides by these kernels."""
    try:
        model, utils = import_module(_MODEL), import_module(_UTILS)
    except ImportError:
        return False
    names = ((model, _COUNTED), (utils, _BEFORE), (utils, _COPIES), (utils, _AFTER))
    return hasattr(utils, _COPY) and all(
        hasattr(of, name) and _parameters(getattr(of, name)) <= _GIVEN[name] for of, name in names
    )


def _function(kernel: Any) -> Any:
    return getattr(kernel, "fn", kernel)


def _parameters(kernel: Any) -> set[str]:
    """What a kernel has to be given."""
    found = inspect.signature(_function(kernel)).parameters.values()
    required = {each.name for each in found if each.default is inspect.Parameter.empty}
    return {name for name in required if not name.startswith(_UNUSED)}


_SIZES = {"COPY_BLOCK_SIZE": 1, "CONV_STATE_DIM_FIRST": False}
_GIVEN: dict[str, set[str]] = {
    _COUNTED: {"idx_mapping_ptr", "num_sampled_ptr", "num_accepted_ptr"},
    _BEFORE: {"idx_mapping_ptr", "state_idx_ptr", "num_computed_tokens_ptr", "src_col_ptr"}
    | {"query_start_loc_ptr", "num_accepted_tokens_ptr", "src_off_ptr", "num_reqs"}
    | {"BLOCK_SIZE", "MAMBA_BLOCK_SIZE"},
    _COPIES: {"mamba_state_idx_ptr", "src_col_ptr", "token_bias_ptr", "idx_mapping_ptr"}
    | {"num_reqs", *_SIZES},
    _AFTER: {"num_accepted_tokens_ptr", "mamba_state_idx_ptr", "num_computed_tokens_ptr"}
    | {"num_accepted_tokens_out_ptr", "idx_mapping_ptr", "num_reqs", "block_size", *_SIZES},
}
"""What each kernel is given."""


class RunningStates:
    """Where the state of each request in the model runner is.

    ``block_size`` is that of the groups with states.
    """

    def __init__(self, block_size: int) -> None:
        import torch

        self._size = block_size
        self._utils, model = import_module(_UTILS), import_module(_MODEL)
        self._kernels = {name: attribute(self._utils, name) for name in (_BEFORE, _COPIES, _AFTER)}
        self._kernels[_COUNTED] = attribute(model, _COUNTED)
        made = self._model = object.__new__(attribute(model, "MambaHybridModelState"))
        made._align_mode = True
        made.cache_config = SimpleNamespace(mamba_block_size=block_size, block_size=block_size)
        made.num_accepted_tokens_gpu = torch.ones(_MOST, dtype=torch.int32)
        made._mamba_state_idx_gpu = torch.zeros(_MOST, dtype=torch.int32)
        self._accepted = made.num_accepted_tokens_gpu.numpy()
        self._columns = made._mamba_state_idx_gpu.numpy()
        self._slots: dict[str, int] = {}

    def step(self, scheduled: Sequence[Scheduled], ended: Sequence[str]) -> dict[str, int]:
        """The column in which each request of a step finds its state; none where it has none."""
        for name in ended:
            self._slots.pop(name, None)
        for each in scheduled:
            if each.whole:
                self._add(each)
        known, slots = self._known(scheduled)
        if not known:
            return {}
        computed = np.zeros(_MOST, dtype=np.int64)
        computed[slots] = [each.start for each in known]
        source, bias = np.full(_MOST, -1), np.zeros(_MOST, dtype=np.int64)
        self._run(
            _BEFORE,
            0,
            idx_mapping_ptr=slots,
            state_idx_ptr=self._columns,
            num_computed_tokens_ptr=computed,
            query_start_loc_ptr=np.cumsum([0, *(each.num_tokens for each in known)]),
            num_accepted_tokens_ptr=self._accepted,
            src_col_ptr=source,
            src_off_ptr=bias,
            num_reqs=len(slots),
            BLOCK_SIZE=_MOST,
            MAMBA_BLOCK_SIZE=self._size,
        )
        found = {}
        for place, (each, slot) in enumerate(zip(known, slots, strict=True)):
            copied = self._run(
                _COPIES,
                place,
                mamba_state_idx_ptr=self._columns,
                src_col_ptr=source,
                token_bias_ptr=bias,
                idx_mapping_ptr=slots,
                num_reqs=len(slots),
                **_SIZES,
            )
            further = int(self._accepted[slot] - 1)
            if copied is not None and not further:
                found[each.request] = copied
            elif source[slot] >= 0:  # from the block of the step, as far on as it is told
                found[each.request] = int(self._columns[slot]) + further
        return found

    def sampled(self, scheduled: Sequence[Scheduled], sampled: Mapping[str, Sequence[int]]) -> None:
        """A step has sampled: all tokens of a request but the first are accepted drafts."""
        known, slots = self._known(scheduled)
        counts = np.array([len(sampled.get(each.request, ())) for each in known], dtype=np.int64)
        computed = np.zeros(_MOST, dtype=np.int64)
        for each, slot, count in zip(known, slots, counts, strict=True):
            rejected = each.num_drafts + 1 - count if count else 0
            computed[slot] = each.start + each.num_tokens - rejected
        for place in range(len(known)):
            self._run(
                _COUNTED,
                place,
                idx_mapping_ptr=slots,
                num_sampled_ptr=counts,
                num_accepted_ptr=self._accepted,
            )
        before = self._accepted.copy()
        for place in range(len(known)):
            self._run(
                _AFTER,
                place,
                num_accepted_tokens_ptr=before,
                mamba_state_idx_ptr=self._columns,
                num_computed_tokens_ptr=computed,
                num_accepted_tokens_out_ptr=self._accepted,
                idx_mapping_ptr=slots,
                num_reqs=len(slots),
                block_size=self._size,
                PRECOMPUTED_NEW_COMPUTED=True,
                **_SIZES,
            )

    def _add(self, new: Scheduled) -> None:
        self._slots.pop(new.request, None)
        slot = self._slots[new.request] = min({*range(_MOST)}.difference(self._slots.values()))
        with patch.object(type(self._model).__mro__[1], "add_request", lambda *_: None):
            self._model.add_request(slot, SimpleNamespace(num_computed_tokens=new.start))

    def _known(self, scheduled: Sequence[Scheduled]) -> tuple[list[Scheduled], Any]:
        """The requests whose slot is known; a session's is that of its first input."""
        known = [each for each in scheduled if each.request in self._slots]
        return known, np.array([self._slots[each.request] for each in known], dtype=np.int64)

    def _run(self, name: str, program: int, **given: Any) -> int | None:
        """The column from which a kernel copies for a request, if it does."""
        copied: list[int] = []

        def copy(_state: int, _row: int, source: int, _to: int, bias: int, *_: Any) -> None:
            copied.append(int(source + bias))

        function = _function(self._kernels[name])
        names = inspect.signature(function).parameters
        values = {n: _Pointer(v) if isinstance(v, np.ndarray) else v for n, v in given.items()}
        values |= {n: None for n in names if n.startswith(_UNUSED)} | {
            n: True for n in names if n == "HAS_IDX_MAPPING"
        }
        with patch.dict(function.__globals__, {"tl": _Language(program), _COPY: copy}):
            function(**values)
        return copied[0] if copied else None
