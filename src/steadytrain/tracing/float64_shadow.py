"""Float64 shadows: repeats every operation of a traced run in float64.

Each floating-point storage has a float64 shadow of the same layout, which views and in-place operations share as they
share memory. The tracer runs an operation as it is; this observer runs it once more on the shadows. Values from outside
(parameters, buffers, the batch) are their own shadow. So the whole step runs in float64 too, with the script's loss
code and backward. Casts to half have no effect on the shadow. Integers, masks and random numbers are those of the run.

If float64 cannot run an operation (a custom kernel, a collective), its result comes from the run, and ``not_cast``
counts it. Control flow is not repeated: a branch on a value is the branch of the run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from steadytrain.core.torch_private import STORAGE_ADDRESS
from steadytrain.tracing.operation_facts import Operation, operands_of, operation_of, written_by
from steadytrain.tracing.tensor_summary import has_own_dispatch, storage_of, unseen
from steadytrain.tracing.tracer import Observer

MEMORY_SHARE = 0.5
"""Share of the memory that is free at the start. If shadows need more, the float64 comparison stops."""

FALLBACK_BYTES_MAX = 8 << 30
PRUNE_FROM = 512
NAMES_MAX = 8
_CANNOT = object()
"""Differs from None, which in-place operations on lists return."""

OWN_NAMESPACES = ("aten.", "prims.")
HALF_TO_FLOAT = ("aten._softmax.default", "aten._log_softmax.default")
UNSCALE = "aten._amp_foreach_non_finite_check_and_unscale_.default"
"""Of the gradient scaler, which requires a float32 scale."""

DROPOUT = "aten.native_dropout.default"


@dataclass
class _Float64Shadow:
    reference: Any  # a StorageWeakRef, which torch leaves untyped
    element_bytes: int
    values: Tensor


class Float64Shadows(Observer):
    """The observer of a tracer. Call :meth:`value` while the tensor is alive."""

    def __init__(self, *, bytes_max: int | None = None) -> None:
        self.not_cast: Counter[str] = Counter()
        self.stopped: str | None = None
        self._bytes_max = bytes_max
        self._bytes = 0
        self._prune_at = PRUNE_FROM
        self._by_storage: dict[int, _Float64Shadow] = {}
        self._waiting: tuple[Operation, Any, Any, Any, frozenset[int]] | None = None

    def before(self, number: int, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self._waiting = None
        if self.stopped is not None:
            return
        operation = operation_of(function)
        if operation.only_a_view:
            return
        operands = operands_of(operation, args, kwargs)
        tensors = [operand.value for operand in operands if isinstance(operand.value, Tensor)]
        if not any(_has_shadow(tensor) for tensor in tensors):
            return
        written = written_by(operation, operands)
        into = [operand.value for operand in operands if operand.argument in written]
        if any(isinstance(value, Tensor) and not _has_shadow(value) for value in into):
            return  # the operation writes values without a shadow, and the run does that once
        with unseen():
            if self._bytes_max is None:
                self._bytes_max = _free_bytes(tensors[0].device)
            shadow_args, shadow_kwargs = self._cast(operation, args), self._cast_all(operation, kwargs)
            known = frozenset(address for tensor in tensors if (address := _address(tensor)) is not None)
        self._waiting = (operation, function, shadow_args, shadow_kwargs, known)

    def after(self, number: int, result: object) -> None:
        if self._waiting is None:
            return
        (operation, function, args, kwargs, known), self._waiting = self._waiting, None
        made = [tensor for tensor in _flat(result) if isinstance(tensor, Tensor)]
        with unseen():
            shadows = self._do(operation, function, args, kwargs, result)
            if shadows is _CANNOT:
                self._forget(operation, function, made, args)
                return
            for tensor, shadow in zip(_flat(result), _flat(shadows), strict=False):
                if not isinstance(tensor, Tensor) or not _has_shadow(tensor) or _address(tensor) in known:
                    continue
                if not isinstance(shadow, Tensor) or shadow.shape != tensor.shape:
                    self._forget(operation, function, [tensor], ())
                else:
                    self._put(tensor, shadow)

    def value(self, tensor: Tensor) -> Tensor | None:
        """The float64 shadow of ``tensor``; None if it can have none."""
        if not _has_shadow(tensor):
            return None
        with unseen():
            return self._of(tensor)

    def close(self) -> None:
        """Frees all shadows."""
        self._by_storage.clear()
        self._waiting = None

    @property
    def names(self) -> tuple[str, ...]:
        """The operations that did not run in float64, the most frequent first."""
        return tuple(name for name, _ in self.not_cast.most_common(NAMES_MAX))

    def _do(self, operation: Operation, function: Any, args: Any, kwargs: Any, result: object) -> object:
        """Runs the operation on the shadows. Returns ``_CANNOT`` if float64 does not support it."""
        if operation.name == DROPOUT and isinstance(result, tuple):
            # Reuse the run's dropout mask.
            keep = 1.0 - float(args[1])
            return args[0] * result[1] / keep if keep else args[0] * 0.0, result[1]
        if operation.name == UNSCALE:
            for gradient in args[0]:
                gradient.mul_(args[2])
            return ()
        drawn = torch.Tag.nondeterministic_seeded in getattr(function, "tags", ())
        if drawn or not operation.name.startswith(OWN_NAMESPACES):
            return _CANNOT
        try:
            outcome: object = function(*args, **kwargs)
        except Exception:  # no float64 kernel, or one that checks the dtype
            return _CANNOT
        return outcome

    def _forget(self, operation: Operation, function: Any, made: Sequence[Tensor], args: Any) -> None:
        """From here on the results' shadows are the run's own values."""
        drawn = torch.Tag.nondeterministic_seeded in getattr(function, "tags", ())
        if not drawn:
            self.not_cast[operation.name] += 1
        for tensor in made:
            address = _address(tensor)
            if address is not None:
                self._drop(address)
        if operation.written:
            for address, shadow in list(self._by_storage.items()):
                if any(isinstance(arg, Tensor) and _shares(arg, shadow.values) for arg in _flat(args)):
                    self._drop(address)

    def _cast(self, operation: Operation, value: Any) -> Any:
        if isinstance(value, Tensor):
            return self._of(value) if _has_shadow(value) else value
        if isinstance(value, torch.dtype):
            return torch.complex128 if value.is_complex else torch.float64 if value.is_floating_point else value
        if isinstance(value, (list, tuple)):
            cast = [self._cast(operation, entry) for entry in value]
            if operation.name in HALF_TO_FLOAT and len(cast) == 3:
                cast[2] = False
            return cast if isinstance(value, list) else tuple(cast)
        return value

    def _cast_all(self, operation: Operation, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        return {name: self._cast(operation, value) for name, value in kwargs.items()}

    def _of(self, tensor: Tensor) -> Tensor:
        storage = storage_of(tensor)
        assert storage is not None
        shadow = self._by_storage.get(STORAGE_ADDRESS.of(storage))
        if shadow is None or shadow.reference.expired() or shadow.element_bytes != tensor.element_size():
            count = storage.nbytes() // tensor.element_size()
            whole = torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(storage, 0, (count,), (1,))
            shadow = self._keep(storage, tensor.element_size(), whole.to(torch.float64))
        values: Tensor = shadow.values.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())
        return values

    def _put(self, tensor: Tensor, values: Tensor) -> None:
        storage = storage_of(tensor)
        assert storage is not None
        count = storage.nbytes() // tensor.element_size()
        own = values.untyped_storage()
        whole = own.nbytes() == count * 8 and values.storage_offset() == 0 and tensor.storage_offset() == 0
        if whole and values.stride() == tensor.stride() and values.dtype == torch.float64:
            flat = values.as_strided((count,), (1,))
        else:
            flat = torch.zeros(count, dtype=torch.float64, device=tensor.device)
            flat.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset()).copy_(values)
        self._keep(storage, tensor.element_size(), flat)

    def _keep(self, storage: torch.UntypedStorage, element_bytes: int, values: Tensor) -> _Float64Shadow:
        self._drop(STORAGE_ADDRESS.of(storage))
        reference = StorageWeakRef(storage)  # type: ignore[no-untyped-call]
        shadow = self._by_storage[STORAGE_ADDRESS.of(storage)] = _Float64Shadow(reference, element_bytes, values)
        self._bytes += values.nbytes
        assert self._bytes_max is not None
        if len(self._by_storage) >= self._prune_at or self._bytes > self._bytes_max:
            self._prune()
            if self._bytes > self._bytes_max:
                self.stopped = f"more than {self._bytes_max / 1e9:.1f} GB would be needed"
                self.close()
        return shadow

    def _drop(self, address: int) -> None:
        gone = self._by_storage.pop(address, None)
        if gone is not None:
            self._bytes -= gone.values.nbytes

    def _prune(self) -> None:
        for address, shadow in list(self._by_storage.items()):
            if shadow.reference.expired():
                self._drop(address)
        self._prune_at = max(PRUNE_FROM, 2 * len(self._by_storage))


def _has_shadow(tensor: Tensor) -> bool:
    if has_own_dispatch(type(tensor)) or not tensor.is_floating_point() or tensor.layout != torch.strided:
        return False
    return not tensor.is_quantized and storage_of(tensor) is not None


def _address(tensor: Tensor) -> int | None:
    storage = storage_of(tensor)
    return None if storage is None else int(STORAGE_ADDRESS.of(storage))


def _shares(one: Tensor, other: Tensor) -> bool:
    return one.layout == torch.strided and STORAGE_ADDRESS.of(one.untyped_storage()) == STORAGE_ADDRESS.of(
        other.untyped_storage()
    )


def _flat(value: object) -> list[object]:
    if isinstance(value, (list, tuple)):
        return [inner for entry in value for inner in _flat(entry)]
    return [value]


def _free_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0] * MEMORY_SHARE)
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            available = next(line for line in lines if line.startswith("MemAvailable"))
        return int(int(available.split()[1]) * 1024 * MEMORY_SHARE)
    except (OSError, StopIteration, ValueError):
        return FALLBACK_BYTES_MAX
