"""Compares what a model was called with, without a trace that is on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from steadytrain.capture.step.input_recorder import MicroBatch, map_tensors, tensors_in
from steadytrain.capture.tensors.dense import same_values
from steadytrain.core.incident import BATCH_IS_BAD
from steadytrain.tracing.input_names import named_tensors
from steadytrain.tracing.tensor_summary import Kinds, count_kind, kinds_of, unseen


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


def nan_in_data(calls: Iterable[MicroBatch]) -> str:
    """The first input of these model calls that holds NaN and that no model computed, in words; "" if there is none."""
    with unseen():
        for call in calls:
            for name, tensor in named_tensors(call.args, call.kwargs).items():
                if tensor.grad_fn is None and Kinds.NAN in kinds_of(tensor):
                    count, first = count_kind(tensor, Kinds.NAN)
                    values = f"{count} of {tensor.numel()} values, first at {first}"
                    return f"{BATCH_IS_BAD} NaN: {name}, {values}, when the model got it"
    return ""
