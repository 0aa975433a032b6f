"""Reads an optimizer's state for each parameter: first and second moment, epsilon, decay and step, by any name.

State is found by name and shape. So foreach, fused and capturable variants, and third-party optimizers of the same
family, need no special code. Unknown state is named in a note, never guessed. Nothing is written, and reading adds no
entry to ``optimizer.state``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from steadytrain.capture.tensors.dense import dense_values

FIRST_NAMES = ("exp_avg", "momentum_buffer", "momentum", "first_moment", "m", "state1")
SECOND_AVERAGES = ("max_exp_avg_sq", "exp_avg_sq", "square_avg", "variance", "second_moment", "v", "state2")
"""Running means of squared gradients. For amsgrad the maximum comes first, because it divides the update."""

SECOND_SUMS = ("sum",)
"""Sums of squared gradients (Adagrad): a second moment that is no mean, so it has no ratio."""

FACTORED = (("row_var", "col_var"), ("exp_avg_sq_row", "exp_avg_sq_col"))
"""A second moment stored as two vectors (Adafactor of torch and of transformers)."""

ROTATED = ("Q", "GG", "projector")
"""Entries of optimizers with moments in another basis (SOAP, GaLore), whose elements belong to no single weight."""

_MAXIMA = ("exp_inf",)  # Adamax: a maximum of magnitudes, no squares
_NO_MOMENTS = ("ax", "prev", "step_size", "acc_delta", "grad_avg")  # of ASGD, Rprop, Adadelta, centred RMSprop


@dataclass(frozen=True)
class Moments:
    """The moments of one parameter after a step. ``first`` and ``second`` have its shape, or are None.

    ``ratio_is_defined`` means that ``second`` is an elementwise running mean of squared gradients. ``correction`` is
    (beta2, step) if the optimizer divides the second moment by 1 - beta2^step; each may be a 0-d tensor on any device.
    """

    first: Tensor | None = None
    second: Tensor | None = None
    epsilon: float | None = None
    correction: tuple[float | Tensor, float | Tensor] | None = None
    ratio_is_defined: bool = False

    def root_bias(self) -> float | Tensor:
        """Square root of 1 - beta2^step; 1 without correction. A tensor if beta2 or step is one."""
        if self.correction is None:
            return 1.0
        beta, step = self.correction
        if isinstance(step, Tensor) and step.device.type == "cpu":
            step = float(step)
        if isinstance(beta, Tensor) and beta.device.type == "cpu":
            beta = float(beta)
        if not isinstance(beta, Tensor) and not isinstance(step, Tensor):
            return float(max(0.0, 1.0 - beta**step) ** 0.5)
        bias = 1.0 - torch.as_tensor(beta**step)
        return bias.detach().reshape(()).clamp_min(0.0).sqrt()


@dataclass(frozen=True)
class Found:
    """Moments by ``id(parameter)``, and notes for the user on omitted state, with reasons."""

    moments: Mapping[int, Moments]
    notes: tuple[str, ...] = ()


def find_moments(optimizer: torch.optim.Optimizer) -> Found:
    """The moments of every parameter that the optimizer has stepped."""
    found: dict[int, Moments] = {}
    notes: dict[str, None] = {}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            # get, not []: a missing key would add an entry
            state = optimizer.state.get(parameter)
            if isinstance(state, Mapping) and state:
                found[id(parameter)] = _moments(type(optimizer).__name__, group, parameter, state, notes)
    return Found(found, tuple(notes))


def _moments(
    optimizer: str, group: Mapping[str, Any], parameter: Tensor, state: Mapping[str, Any], notes: dict[str, None]
) -> Moments:
    tensors = {name: value for name, value in state.items() if isinstance(value, Tensor)}
    first, first_name = _entry(optimizer, tensors, FIRST_NAMES, parameter, notes)
    second, second_name = _entry(optimizer, tensors, (*SECOND_AVERAGES, *SECOND_SUMS), parameter, notes)
    if second is None and any(row in tensors and column in tensors for row, column in FACTORED):
        notes[f"{optimizer} keeps its second moment in factors (rows and columns): it is left out"] = None
    if second is None and any(name in tensors for name in _MAXIMA):
        notes[f"{optimizer} keeps a maximum of magnitudes instead of a second moment: it is left out"] = None
    rotated = [name for name in ROTATED if name in state]
    if rotated:
        notes[f"{optimizer} keeps its moments in another basis ({rotated[0]}): ratios to the gradient are left out"] = (
            None
        )
    if first is None and second is None:
        _name_unknown(optimizer, tensors, parameter, notes)
    average = second is not None and second_name in SECOND_AVERAGES and not rotated
    return Moments(
        first=first,
        second=second,
        epsilon=_epsilon(group) if second is not None else None,
        correction=_correction(group, state, first_name) if average else None,
        ratio_is_defined=average,
    )


def _entry(
    optimizer: str, tensors: Mapping[str, Tensor], names: tuple[str, ...], parameter: Tensor, notes: dict[str, None]
) -> tuple[Tensor | None, str | None]:
    """The first of ``names`` that exists and has one float per weight."""
    for name in names:
        tensor = tensors.get(name)
        if tensor is None or tensor.numel() == 0:
            continue
        values = dense_values(tensor)
        if values is None or values.dtype.itemsize == 1:
            notes[f"{optimizer} keeps {name} in 8 bits: it is left out"] = None
        elif tensor.shape == parameter.shape:
            return values, name
    return None, None


def _name_unknown(optimizer: str, tensors: Mapping[str, Tensor], parameter: Tensor, notes: dict[str, None]) -> None:
    alike = sorted(name for name, tensor in tensors.items() if tensor.shape == parameter.shape and tensor.dim())
    known = {*FIRST_NAMES, *SECOND_AVERAGES, *SECOND_SUMS, *_MAXIMA, *_NO_MOMENTS}
    if unknown := [name for name in alike if name not in known]:
        notes[f"{optimizer} keeps {', '.join(unknown)}, not known as a moment: left out"] = None


def _epsilon(group: Mapping[str, Any]) -> float | None:
    epsilon = group.get("eps")
    if isinstance(epsilon, (tuple, list)):  # Adafactor: one for the squares, one for the weights
        return None
    return float(epsilon) if isinstance(epsilon, (int, float)) else None


def _correction(
    group: Mapping[str, Any], state: Mapping[str, Any], first_name: str | None
) -> tuple[float | Tensor, float | Tensor] | None:
    """(beta2, step) of an Adam-like optimizer with bias correction; None for others."""
    betas = group.get("betas")
    step = state.get("step", group.get("step"))
    if not isinstance(betas, (tuple, list)) or len(betas) != 2 or not isinstance(step, (int, float, Tensor)):
        return None
    if group.get("correct_bias") is False or group.get("bias_correction") is False:
        return None
    return (betas[1], step) if first_name in ("exp_avg", "state1") else None
