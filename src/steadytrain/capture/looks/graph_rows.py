"""What the graph of one loss shows beside the inputs of the call that made it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from steadytrain.capture.looks.attention_masks import mask_rows
from steadytrain.capture.looks.duplicate_positives import duplicate_rows
from steadytrain.capture.looks.equal_inputs import equal_input_rows
from steadytrain.capture.looks.first_inputs import input_rows
from steadytrain.capture.looks.flat_derivatives import is_flat
from steadytrain.capture.looks.live_weights import live_weights
from steadytrain.capture.looks.loss_graph import LossGraph
from steadytrain.capture.looks.mixed_rows import Attended, Batch, mixed_rows
from steadytrain.capture.looks.norm_values import usual_values
from steadytrain.capture.looks.padded_ends import padded_end_rows
from steadytrain.capture.looks.position_ids import counted_rows
from steadytrain.capture.looks.rounded_ids import rounded_rows
from steadytrain.capture.looks.unmasked_padding import unmasked_rows
from steadytrain.capture.looks.view_orders import interleaved_rows, scrambled_rows, viewed_inputs
from steadytrain.capture.step.input_recorder import MicroBatch, frames_of, ids_of, tensors_in


def graph_rows(
    graph: LossGraph, call: MicroBatch | None, recurrent: Sequence[Attended], *, drawn: int, has_recurrent: bool
) -> Iterator[tuple[str, float]]:
    """The measures of ``graph``, each with its value. ``judged`` is how many values the loss functions judge for each
    sample.

    Args:
        call: the call of the model that made it, if it is known.
        recurrent: sequences and lengths that recurrent layers have read.
        has_recurrent: whether the model has such layers.
        drawn: the rows that a loader drew for the step; 0 if unknown.
    """
    yield from input_rows(graph.inputs, normalises=graph.normalises, looked_up=bool(graph.looked_up))
    yield from interleaved_rows(graph.inputs)
    yield from rounded_rows(graph.looked_up)
    yield from equal_input_rows(graph, call)
    yield from duplicate_rows(graph.likelihoods, graph.looked_up)
    yield from mask_rows(graph.visible, [*ids_of(call), *frames_of(call)])
    if graph.linear_layers:
        yield "linear-layers", float(graph.linear_layers)
    if is_flat(graph.derivatives):
        yield "piecewise-derivatives", 1.0
    if graph.norm_values:
        yield "norm-values", float(usual_values(graph.norm_values))
    weights = live_weights(graph.products)
    if weights:
        yield "live-weight", float(weights)
    given = [one for one in tensors_in((call.args, call.kwargs)) if _is_plain(one)] if call is not None else []
    yield from unmasked_rows(graph.visible, graph.pools, given)
    yield from scrambled_rows([*graph.views, *viewed_inputs(given, graph.inputs)])
    if call is not None:
        batch = Batch(call.samples, drawn, frozenset(one.shape[1] for one in given if one.dim() >= 2))
        yield from mixed_rows(graph.attended, recurrent, graph.predicted, batch)
        yield from counted_rows(graph.looked_up, batch)
        judged = sum(math.prod(shape) for shape in graph.predicted if shape)
        if judged and call.samples:
            yield "judged", judged / call.samples
        if has_recurrent and graph.ends:
            yield from padded_end_rows(graph.ends, given)


def _is_plain(tensor: Tensor) -> bool:
    """Whether ``tensor`` has one shape and its values at hand."""
    return type(tensor) is Tensor and tensor.layout == torch.strided and not tensor.is_nested and not tensor.is_meta
