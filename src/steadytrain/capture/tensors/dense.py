"""Finds the plain local values of tensors of any kind."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from steadytrain.core.torch_private import FAKE_TENSOR, IS_WRAPPER, SPARSE_VALUES

_PLAIN = frozenset({Tensor, nn.Parameter})
"""Exact types: no subclass, so neither a wrapper nor a fake tensor."""


def dense_values(tensor: Tensor) -> Tensor | None:
    """The plain local values of a tensor, without a copy if possible; None for kinds without floats.

    A sparse tensor returns its stored values, a sharded one (DTensor) its local part, a complex one a real view. None
    for integer, quantised, meta and fake tensors, parameters without a shape yet, and wrappers with their own storage
    format.
    """
    if type(tensor) in _PLAIN and tensor.layout is torch.strided and tensor.dtype.is_floating_point:
        return None if tensor.is_meta else tensor.detach() if tensor.requires_grad else tensor
    if is_lazy(tensor):
        return None
    if hasattr(tensor, "to_local"):
        tensor = tensor.to_local()
    if type(tensor).__name__ == "AsyncCollectiveTensor":  # a local part that a collective is still computing
        tensor = tensor.wait()  # type: ignore[attr-defined]
    if tensor.device.type == "meta" or tensor.is_quantized or _keeps_no_values(tensor):
        return None
    tensor = tensor.detach()
    if tensor.layout == torch.sparse_coo:
        tensor = SPARSE_VALUES.of(tensor)()
    elif tensor.layout != torch.strided:
        tensor = tensor.values()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    return tensor if tensor.is_floating_point() else None


def has_empty_shard(tensor: Tensor) -> bool:
    """Whether this rank holds no element of a sharded parameter that has some."""
    return type(tensor) not in _PLAIN and hasattr(tensor, "to_local") and not tensor.to_local().numel()


def _keeps_no_values(tensor: object) -> bool:
    return isinstance(tensor, FAKE_TENSOR.get()) or IS_WRAPPER(tensor)


def same_values(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors of any layout have the same shape, dtype and values; NaN equals NaN."""
    if (one.shape, one.dtype, one.layout) != (other.shape, other.dtype, other.layout):
        return False
    return all(map(_same_plain, _stored(one), _stored(other)))


def _same_plain(one: Tensor, other: Tensor) -> bool:
    if one.is_floating_point() or one.is_complex():
        one, other = torch.nan_to_num(one), torch.nan_to_num(other)
    return torch.equal(one, other)


def _stored(tensor: Tensor) -> tuple[Tensor, ...]:
    """What a tensor of any layout is made of, as plain tensors."""
    tensor = tensor.detach()
    if tensor.layout == torch.strided:
        return (tensor,)
    if tensor.layout == torch.sparse_coo:
        whole = tensor.coalesce()
        return whole.indices(), whole.values()
    return (tensor.to_dense(),)
