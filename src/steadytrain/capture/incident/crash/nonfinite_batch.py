"""Evidence of NaN or Inf in the batch of the step in which the script raised: which tensor, and in which rows.

Torch refuses some values itself (a target of a binary cross-entropy that is not between 0 and 1), and scripts refuse a
loss that is not finite. Such a step never comes to its gate, so no symptom is raised.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from steadytrain.capture.incident.crash.errors import chain, error_facts, live_frames
from steadytrain.core.incident import Samples

ROWS_MAX = 8
ELEMENTS_MAX = 1 << 24
TARGETS = ("target", "targets", "labels")
"""Names of the variables of a loss function that hold its targets."""

_KINDS = (RuntimeError, ValueError, ArithmeticError, AssertionError)
_OF_VALUES = re.compile(
    r"\bnan\b|isnan|\binf\b|\binfs?\b|isinf|finite|between 0 and 1|constraint|invalid values?|not converge|"
    r"failed to converge|positive.definite|singular|element < 0|out of range|non.?negative",
    re.IGNORECASE,
)
"""What an error says, or its line, if it is about the values of a tensor and not about its shape or its device."""


def nonfinite_batch_document(
    error: BaseException,
    given: Sequence[tuple[str, Tensor]],
    inputs: Sequence[tuple[str, Tensor]],
    drawn: Sequence[Samples],
) -> dict[str, Any] | None:
    """The evidence; None for an error about something else than values, or if the batch is finite.

    Args:
        given: what the loaders gave in this step, with its path in the batch.
        inputs: what the model was called with in this step.
        drawn: the data set samples of that batch, if known.
    """
    first = next((one for one in chain(error) if isinstance(one, _KINDS) and _is_of_values(one)), None)
    if first is None:
        return None
    for where, tensors in (("batch", given), ("call", [*inputs, *_targets(first)])):
        if where == "call" and given:
            break  # what the loaders gave is finite: the script made it
        for name, tensor in tensors:
            bad = _bad(tensor)
            if bad is not None:
                return {
                    "error": error_facts(first),
                    "from": where,
                    "tensor": name,
                    "count": int(bad.sum()),
                    "of": bad.numel(),
                    "nan": int(tensor.isnan().sum()),
                    "rows": _rows(bad, drawn),
                }
    return None


def _is_of_values(error: BaseException) -> bool:
    frames = error_facts(error)["frames"]
    return _OF_VALUES.search(f"{error} {frames[-1]['code'] if frames else ''}") is not None


def _targets(error: BaseException) -> Iterator[tuple[str, Tensor]]:
    """The targets of the loss functions that raised."""
    for frame in live_frames(error):
        for name in TARGETS:
            value = frame.f_locals.get(name)
            if isinstance(value, Tensor) and not value.requires_grad:
                yield name, value


def _bad(tensor: Tensor) -> Tensor | None:
    """Where a tensor of real numbers on the host holds NaN or Inf; None if nowhere."""
    plain = tensor.device.type == "cpu" and tensor.layout == torch.strided and tensor.is_floating_point()
    if not plain or tensor.grad_fn is not None or not 0 < tensor.numel() <= ELEMENTS_MAX:
        return None
    bad = ~tensor.detach().isfinite()
    return bad if bool(bad.any()) else None


def _rows(bad: Tensor, drawn: Sequence[Samples]) -> list[dict[str, Any]]:
    """The rows and their places in the data set, the first ``ROWS_MAX``."""
    if not bad.dim():
        return []
    found = bad.reshape(bad.shape[0], -1).any(1).nonzero().flatten()[:ROWS_MAX].tolist()
    last = drawn[-1] if drawn and len(drawn[-1].indices) == bad.shape[0] else None
    return [{"row": row, "sample": last.named(row) if last is not None else None} for row in found]
