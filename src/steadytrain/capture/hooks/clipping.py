"""Reads gradient norms before clipping at no cost, because ``clip_grad_norm_`` computes them itself.

While torch's own ``clip_grad_norm_`` runs, the two functions of torch that compute norms also hand them over. If these
norms are not suitable (another norm, half precision, sharded gradients), we compute them before the call. The applied
norms are the norms before clipping times the coefficient, unless other code has written to the gradients since. Their
version counters show that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import get_ident
from typing import Any

import torch
from torch import Tensor

from steadytrain.capture.hooks.fail_open import Guard
from steadytrain.capture.tensors.statistics import TensorState, dense_values, exact_state, fetch, l2_norms
from steadytrain.core.torch_private import FOREACH_NORM, NO_TORCH_FUNCTION, VERSION

_COEFFICIENT_EPSILON = 1e-6  # clip_grad_norm_ divides by the norm plus this


@dataclass
class Clipping:
    """The measurements around the clips of one step, by ``id(parameter)``.

    ``norms`` are from before the first clip. ``states`` are exact counts of the non-finite gradients, taken before
    clipping spreads the NaN. ``total`` and ``limit`` belong to the last clip. ``_left`` has the id and version of each
    gradient after it.
    """

    norms: dict[int, Tensor] = field(default_factory=dict)
    states: dict[int, TensorState] = field(default_factory=dict)
    total: Tensor | None = None
    limit: float | None = None
    clips: int = 0
    parameters: int = 0
    """The parameters that the clips were given, in all."""

    _clipped: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    _left: dict[int, tuple[int, int]] = field(default_factory=dict)
    _open: list[tuple[Tensor, Tensor, Tensor]] = field(default_factory=list)
    """Parameter, gradient and norm on the CPU that no total has shown to be finite yet."""

    @property
    def left(self) -> Mapping[int, tuple[int, int]]:
        """By ``id(parameter)`` what the one clip of the step left: the id of the gradient and its version. Where both
        are the same now, the gradient is known. Empty if the step had no clip, or several."""
        return self._left if self.clips == 1 and self.total is not None else {}

    def coefficient(self, total: float) -> float:
        """The factor that the last clip applied to the gradients, given its ``total`` as a number."""
        assert self.limit is not None
        coefficient = self.limit / (total + _COEFFICIENT_EPSILON)
        return coefficient if math.isnan(coefficient) else min(1.0, coefficient)

    @property
    def given_nothing(self) -> bool:
        """Whether no clip of the step was given a parameter."""
        return self.clips > 0 and not self.parameters

    @property
    def found_nothing(self) -> bool:
        """Whether no clip of the step found a gradient that is not zero. Waits for no accelerator."""
        if not self.clips:
            return False
        return all(norm.device.type == "cpu" and not bool(norm) for norm in self.norms.values())

    def begin(self, parameters: Sequence[Tensor], arguments: ClipArguments, guard: Guard) -> NormsTaken | None:
        """Prepare for the script's call of ``clip_grad_norm_``. Enter the returned context around that call."""
        self.clips += 1
        self.parameters += len(parameters)
        self._left.clear()
        self._open.clear()
        self.total, self.limit = None, arguments.limit
        self._clipped = [(parameter, parameter.grad) for parameter in parameters if parameter.grad is not None]
        if not arguments.is_l2 or not all(_reads_well(gradient) for _, gradient in self._clipped):
            self._keep(self._clipped, _norms([gradient for _, gradient in self._clipped]))
            self._look()
            if not arguments.is_l2 or not all(_is_half(gradient) for _, gradient in self._clipped):
                self._clipped.clear()
            return None
        owners = {id(gradient): parameter for parameter, gradient in self._clipped}

        def read(tensors: Sequence[Any], norms: Sequence[Tensor]) -> None:
            with guard.part("reading the gradients before clipping"), NO_TORCH_FUNCTION():
                pairs = [(owners.get(id(tensor)), tensor) for tensor in tensors]
                if pairs and not any(owner is not None for owner, _ in pairs):  # the total, of these norms
                    self._look(norms[0] if len(norms) == 1 else None)
                else:
                    self._keep(pairs, norms)

        return NormsTaken(read)

    def end(self, total: Any) -> None:
        """The clip returned ``total``."""
        self._look()
        clipped, self._clipped = self._clipped, []
        if not clipped or self.limit is None or not isinstance(total, Tensor):
            return
        left = {id(parameter): (id(gradient), VERSION.of(gradient)) for parameter, gradient in clipped}
        if left.keys() <= self.norms.keys():
            self.total, self._left = total.detach(), left

    def _keep(self, gradients: Sequence[tuple[Tensor | None, Tensor]], norms: Sequence[Tensor | None]) -> None:
        """Keep these norms, each of a gradient and its parameter."""
        for (parameter, gradient), norm in zip(gradients, norms, strict=True):
            if parameter is not None and norm is not None:
                self.norms.setdefault(id(parameter), norm)
                if norm.is_cpu:  # reading it needs no synchronisation
                    self._open.append((parameter, gradient, norm))

    def _look(self, total: Tensor | None = None) -> None:
        """Count the gradients whose norm is not finite, before the clip spreads the NaN. A finite ``total`` shows that
        all of them are finite."""
        opened, self._open = self._open, []
        if not opened or (total is not None and total.is_cpu and total.numel() == 1 and math.isfinite(total.item())):
            return
        values = fetch([norm for _, _, norm in opened])
        for (parameter, gradient, _), value in zip(opened, values, strict=True):
            if not math.isfinite(value):
                self.states.setdefault(id(parameter), exact_state(gradient))


@dataclass(frozen=True)
class ClipArguments:
    """The arguments of ``clip_grad_norm_(parameters, max_norm, norm_type=2.0, ...)`` or ``clip_grad_value_``."""

    limit: float | None
    is_l2: bool

    @staticmethod
    def of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> ClipArguments:
        limit = args[0] if args else kwargs.get("max_norm")
        order = args[1] if len(args) > 1 else kwargs.get("norm_type", 2.0)
        return ClipArguments(
            limit=float(limit) if isinstance(limit, (int, float)) else None,
            is_l2=isinstance(order, (int, float)) and float(order) == 2.0,
        )

    @staticmethod
    def of_value(args: tuple[Any, ...], kwargs: dict[str, Any]) -> ClipArguments:
        limit = args[0] if args else kwargs.get("clip_value")
        return ClipArguments(limit=float(limit) if isinstance(limit, (int, float)) else None, is_l2=False)


@torch.no_grad()
def _norms(tensors: Sequence[Tensor]) -> list[Tensor | None]:
    """The norm of each tensor; None for kinds of tensors without a norm."""
    dense = [dense_values(tensor) for tensor in tensors]
    norms = iter(l2_norms([values for values in dense if values is not None]))
    return [next(norms) if values is not None else None for values in dense]


class NormsTaken:
    """Passes the norms that torch computes on this thread to ``read``. The calls themselves are unchanged.

    A torch function mode would see them too, and would be called for each gradient that the clip touches: a millisecond
    for 150 tensors.
    """

    def __init__(self, read: Callable[[Sequence[Any], Sequence[Tensor]], None]) -> None:
        self._read = read
        self._thread = get_ident()
        self._undo: list[tuple[Any, str, Any, Any]] = []

    def __enter__(self) -> None:
        self._put(FOREACH_NORM.owner(), FOREACH_NORM.attribute, self._read)
        self._put(torch.linalg, "vector_norm", lambda tensor, norm: self._read([tensor], [norm]))

    def __exit__(self, *exception: object) -> None:
        while self._undo:
            owner, name, original, ours = self._undo.pop()
            if getattr(owner, name) is ours:
                setattr(owner, name, original)

    def _put(self, owner: Any, name: str, read: Callable[[Any, Any], None]) -> None:
        original = getattr(owner, name)

        def norms(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            if args and get_ident() == self._thread:
                read(args[0], result)
            return result

        setattr(owner, name, norms)
        self._undo.append((owner, name, original, norms))


def _reads_well(gradient: Tensor) -> bool:
    """Whether torch's own norm of this gradient is usable for us."""
    return _is_plain(gradient) and gradient.dtype in (torch.float32, torch.float64)


def _is_half(gradient: Tensor) -> bool:
    """Whether torch's own norm of this gradient is too coarse, but its coefficient of the clip is known."""
    return _is_plain(gradient) and gradient.dtype in (torch.float16, torch.bfloat16)


def _is_plain(gradient: Tensor) -> bool:
    return type(gradient) is Tensor and gradient.layout == torch.strided and gradient.numel() > 0
