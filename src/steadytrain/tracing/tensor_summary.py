"""Inspects one tensor: which kinds of non-finite values it holds, and a readable summary.

Every inspection goes through :func:`kinds_of`. Nothing here changes a tensor or draws a random number, and no dispatch
or function mode sees it (:func:`unseen`). A tensor that cannot be inspected (meta, quantized, integer, a foreign
subclass) counts as finite.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import IntFlag
from typing import Any

import torch

from steadytrain.core.incident import OperandRange
from steadytrain.core.torch_private import LOCAL_TENSOR, NO_DISPATCH, NO_TORCH_FUNCTION, PLAIN_DISPATCH, SPARSE_VALUES

TEXT_CHARACTERS_MAX = 80
"""A scalar or list argument is cut here: enough for a shape or a list of dimensions."""


class Kinds(IntFlag):
    """The kinds of non-finite values in a tensor. They are separate because their origins differ."""

    NONE = 0
    NAN = 1
    POSITIVE_INF = 2
    NEGATIVE_INF = 4


EACH_KIND = (Kinds.NAN, Kinds.POSITIVE_INF, Kinds.NEGATIVE_INF)
WORDS: Mapping[Kinds, str] = {Kinds.NAN: "NaN", Kinds.POSITIVE_INF: "+Inf", Kinds.NEGATIVE_INF: "-Inf"}


@contextmanager
def unseen() -> Iterator[None]:
    """Hides the block from dispatch modes, function modes, tensor subclasses, autocast and the gradient tape."""
    with NO_DISPATCH(), NO_TORCH_FUNCTION(), torch.no_grad():
        yield


def kinds_of(tensor: torch.Tensor) -> Kinds:
    """The kinds of non-finite values in ``tensor``. A finite tensor costs one reduction and one host sync."""
    plain = _compact(_numbers(tensor))
    if plain is None or not plain.is_floating_point() or plain.numel() == 0:
        return Kinds.NONE
    # A sum is the cheapest reduction, and any non-finite value shows in it. An overflow of the sum is checked below.
    if math.isfinite(plain.sum().item()):
        return Kinds.NONE
    smallest, largest = (float(bound) for bound in torch.stack(torch.aminmax(plain)).tolist())
    if smallest != smallest:  # aminmax returns NaN if there is one, which hides the infinities
        positive = Kinds.POSITIVE_INF if bool(torch.isposinf(plain).any()) else Kinds.NONE
        negative = Kinds.NEGATIVE_INF if bool(torch.isneginf(plain).any()) else Kinds.NONE
        return Kinds.NAN | positive | negative
    kinds = Kinds.NONE
    if largest == float("inf"):
        kinds |= Kinds.POSITIVE_INF
    if smallest == float("-inf"):
        kinds |= Kinds.NEGATIVE_INF
    return kinds


def kinds_of_number(value: object) -> Kinds:
    """Like :func:`kinds_of`, for a Python number."""
    if isinstance(value, complex):
        return kinds_of_number(value.real) | kinds_of_number(value.imag)
    if not isinstance(value, float):
        return Kinds.NONE
    if value != value:
        return Kinds.NAN
    infinities = {float("inf"): Kinds.POSITIVE_INF, float("-inf"): Kinds.NEGATIVE_INF}
    return infinities.get(value, Kinds.NONE)


def count_kind(tensor: torch.Tensor, kind: Kinds) -> tuple[int, list[int]]:
    """How many values of ``tensor`` are of ``kind``, and the index of the first."""
    plain = _numbers(tensor)
    assert plain is not None, "only a tensor that was found to hold the kind is counted"
    tests = {Kinds.NAN: torch.isnan, Kinds.POSITIVE_INF: torch.isposinf, Kinds.NEGATIVE_INF: torch.isneginf}
    where = tests[kind](plain)
    flat = int(where.flatten().to(torch.uint8).argmax())
    first: list[int] = []
    for size in reversed(plain.shape):
        flat, position = divmod(flat, size)
        first.insert(0, position)
    return int(where.sum()), first


def summarize(name: str, value: object) -> OperandRange:
    """A summary of one operation argument, tensor or not, for the report."""
    if not isinstance(value, torch.Tensor):
        return OperandRange(name=name, text=_shorten(repr(value)))
    shape, dtype, device = tuple(value.shape), str(value.dtype).removeprefix("torch."), str(value.device)
    plain = _numbers(value)
    if plain is None or plain.numel() == 0:
        return OperandRange(name=name, shape=shape, dtype=dtype, device=device)
    nan, inf = 0, 0
    zeros = plain.numel() - int(plain.count_nonzero())
    if plain.is_floating_point():
        finite = torch.isfinite(plain)
        nan = int(torch.isnan(plain).sum())
        inf = plain.numel() - int(finite.sum()) - nan
        plain = plain[finite] if nan or inf else plain
    smallest, largest = torch.aminmax(_orderable(plain)) if plain.numel() else (None, None)
    return OperandRange(
        name=name,
        shape=shape,
        dtype=dtype,
        device=device,
        smallest=None if smallest is None else float(smallest),
        largest=None if largest is None else float(largest),
        zeros=zeros,
        nan=nan,
        inf=inf,
    )


def largest_absolute(tensor: torch.Tensor) -> torch.Tensor | None:
    """The largest absolute value, NaN if there is one: a float64 scalar tensor on the tensor's device.

    None if there are no floating-point values. No transfer from the device.
    """
    plain = _compact(_numbers(tensor))
    if plain is None or not plain.is_floating_point() or plain.numel() == 0:
        return None
    return torch.stack(torch.aminmax(plain)).abs().max().to(torch.float64)


def storage_of(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    """The memory of the values of ``tensor``; None if it has no plain storage."""
    plain = _strided(tensor)
    return None if plain is None else plain.untyped_storage()


def fills_its_storage(tensor: torch.Tensor) -> bool:
    """Whether ``tensor`` covers every byte of its storage, so that writing it leaves no old value."""
    plain = _strided(tensor)
    if plain is None:
        return False
    compact = _compact(plain)
    assert compact is not None
    return compact.numel() * compact.element_size() >= plain.untyped_storage().nbytes()


def has_own_dispatch(kind: type) -> bool:
    """Whether a tensor class has its own ``__torch_dispatch__`` (DTensor, FakeTensor, quantized wrappers)."""
    return getattr(kind, "__torch_dispatch__", None) is not PLAIN_DISPATCH.get()


def _strided(tensor: torch.Tensor) -> torch.Tensor | None:
    """The plain dense tensor with the values: the local shard of a DTensor, the values of a sparse tensor."""
    if has_own_dispatch(type(tensor)):
        local: Any = LOCAL_TENSOR.on(tensor, None)
        if not isinstance(local, torch.Tensor) or has_own_dispatch(type(local)):
            return None
        tensor = local
    if tensor.is_meta or tensor.is_quantized or tensor.is_mkldnn or tensor.is_nested:
        return None
    if tensor.layout == torch.sparse_coo:
        values: torch.Tensor = SPARSE_VALUES.of(tensor)()
        return values
    if tensor.layout != torch.strided:
        return None
    return tensor


def _numbers(tensor: torch.Tensor) -> torch.Tensor | None:
    """The values of ``tensor`` as real numbers that torch can compare; None if impossible."""
    plain = _strided(tensor)
    if plain is None:
        return None
    plain = plain.detach()
    if plain.is_complex():
        return torch.view_as_real(plain.resolve_conj())
    if plain.is_floating_point() and plain.element_size() == 1:
        return plain.to(torch.float32)  # the float8 types have no comparisons
    return plain


def _compact(tensor: torch.Tensor | None) -> torch.Tensor | None:
    """The same values in memory order without expanded repeats: a strided reduction costs up to 50 times more."""
    if tensor is None or tensor.is_contiguous():
        return tensor
    for dimension, stride in enumerate(tensor.stride()):
        if stride == 0 and tensor.shape[dimension] > 1:
            tensor = tensor.narrow(dimension, 0, 1)
    order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
    return tensor.permute(order)


def _orderable(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.uint8) if tensor.dtype == torch.bool else tensor


def _shorten(text: str) -> str:
    return text if len(text) <= TEXT_CHARACTERS_MAX else text[: TEXT_CHARACTERS_MAX - 3] + "..."
