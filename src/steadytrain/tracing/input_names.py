"""Names the tensors that a model was called with: after its arguments, and the fields of a batch of graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from steadytrain.capture.step.input_recorder import named_tensors_in, tensors_in
from steadytrain.capture.step.sample_indices import fields_of


def named_tensors(args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Tensor]:
    """The tensors of a call, named after their arguments."""
    named = {}
    for lead, value in [*((f"args[{at}]", arg) for at, arg in enumerate(args)), *kwargs.items()]:
        graphs = fields_of(value)
        if graphs is not None:
            named.update({f"{lead}.{name}": tensor for name, tensor in named_tensors_in(graphs)})
            continue
        tensors = list(tensors_in(value))
        for number, tensor in enumerate(tensors):
            named[lead if len(tensors) == 1 else f"{lead}.{number}"] = tensor
    return named
