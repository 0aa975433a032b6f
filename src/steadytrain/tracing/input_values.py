"""Compares what a model was called with, without a trace that is on."""

from __future__ import annotations

from typing import Any

from steadytrain.capture.step.input_recorder import map_tensors, tensors_in
from steadytrain.capture.tensors.dense import same_values
from steadytrain.tracing.tensor_summary import kinds_of, unseen


def same_inputs(one: Any, other: Any) -> bool:
    """Whether two calls get the same values; NaN equals NaN."""
    with unseen():
        ours, theirs = list(tensors_in(one)), list(tensors_in(other))
        return len(ours) == len(theirs) and all(map(same_values, ours, theirs))


def own_leaves(given: Any) -> Any:
    """Recorded inputs for another run: those that an earlier call of a model computed (a hidden state) are leaves of
    their own, because the graph behind them has had its backward."""
    return map_tensors(given, lambda one: one.detach().requires_grad_() if one.grad_fn is not None else one)


def is_bad(given: Any) -> bool:
    """Whether an input of a call holds NaN or Inf."""
    with unseen():
        return any(bool(kinds_of(tensor)) for tensor in tensors_in(given))
