"""Compares the second moments that an optimizer was given with the gradients of its first updates, element by element.

Elements with large moments have large gradients: the two logarithms correlate. Moments that correlate with the
gradients of another parameter of equal shape, and not with those of their own, were given to the wrong one. Needs no
record of the checkpoint. Moments of equal parameters that are alike say nothing.

A second moment of 0 beside a first moment that is not 0 was lost on the way: a square below 6e-8 is 0 in float16.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from steadytrain.capture.looks.held_parameters import is_sharded
from steadytrain.capture.step.optimizer_streams import Stream
from steadytrain.capture.tensors.dense import dense_values

UPDATES = 8
"""Updates whose gradients are averaged."""

ELEMENTS_MIN, SAMPLED_MAX = 256, 4096
EQUAL_MAX, SHAPES_MAX = 32, 8
"""Parameters of one shape, and shapes, that are compared."""

FITS_MIN, APART_MIN = 0.5, 0.3
"""Correlation with the gradients of the other parameter, and how much less it is with those of its own."""

FIRST_MOMENTS = ("exp_avg",)
MOMENTS = ("exp_avg_sq", "square_avg")
NAME_CHARACTERS_MAX = 40


@dataclass
class _Equal:
    """Parameters of one shape: places in the stream; moments and summed squared gradients [count, elements]."""

    places: list[int]
    moments: Tensor
    squares: Tensor


class MisplacedMoments:
    """Serves one stream whose optimizers were given a state. Create it at the gate of its first update."""

    @torch.no_grad()
    def __init__(self, stream: Stream) -> None:
        self._equal: list[_Equal] = []
        self._updates = 0
        self._emptied = emptied_share(stream)
        if is_sharded(stream.parameters):
            return
        shapes: dict[tuple[torch.Size, torch.device], list[tuple[int, Tensor]]] = defaultdict(list)
        for at, one in enumerate(stream.parameters):
            moments = _moments(stream, one)
            if moments is not None and one.numel() >= ELEMENTS_MIN and moments.shape == one.shape:
                shapes[one.shape, moments.device].append((at, moments))
        for found in list(shapes.values())[:SHAPES_MAX]:
            if len(found) > 1:
                held = torch.stack([_sampled(moments) for _, moments in found[:EQUAL_MAX]])
                self._equal.append(_Equal([at for at, _ in found[:EQUAL_MAX]], held, torch.zeros_like(held)))

    @torch.no_grad()
    def rows(self, stream: Stream) -> Iterator[tuple[str, float]]:
        """``moments-misplaced:CLASS (EXAMPLE)`` counts, after ``UPDATES`` updates, parameters with moments of others.

        ``moments-emptied:CLASS`` is the share of the first moments other than 0 whose second moment is 0, before the
        first update. Reads the device once.
        """
        if self._emptied:
            yield f"moments-emptied:{type(stream.optimizers[0]).__name__}", self._emptied
            self._emptied = 0.0
        if not self._equal:
            return
        for one in self._equal:
            sampled = [_gradient(stream, at) for at in one.places]
            dense = [each for each in sampled if each is not None and each.shape == one.squares.shape[1:]]
            if len(dense) < len(sampled):  # sparse, missing, or of another optimizer by now
                self._equal = []
                return
            one.squares += torch.stack(dense).square()
        self._updates += 1
        if self._updates < UPDATES:
            return
        found = [(one, pair) for one in self._equal for pair in _misplaced(one)]
        self._equal = []
        if len(found) > 1:
            one, (own, other, fits, mine) = found[0]
            names = [stream.tensor_names[one.places[at]][-NAME_CHARACTERS_MAX:] for at in (own, other)]
            said = f"{names[0]} has those of {names[1]}, correlation {fits:.2f} against {mine:.2f}"
            yield f"moments-misplaced:{type(stream.optimizers[0]).__name__} ({said})", float(len(found))


def emptied_share(stream: Stream) -> float:
    """The share of the first moments other than 0 whose second moment is 0, at the first call for ``stream``; 0 for an
    optimizer without both."""
    if stream.lost_moments is None:
        stream.lost_moments = _emptied(stream)
    return stream.lost_moments


@torch.no_grad()
def _emptied(stream: Stream) -> float:
    kept, lost = [], []
    for one in [] if is_sharded(stream.parameters) else stream.parameters:
        first, second = (_held(stream, one, names) for names in (FIRST_MOMENTS, MOMENTS))
        if first is not None and second is not None and first.shape == second.shape:
            kept.append((first != 0).sum())
            lost.append(((first != 0) & (second == 0)).sum())
    if not kept:
        return 0.0
    device = kept[0].device
    counts = torch.stack([torch.stack([one.to(device) for one in counted]).sum() for counted in (lost, kept)]).tolist()
    return float(counts[0]) / max(1.0, float(counts[1]))


def _moments(stream: Stream, parameter: Tensor) -> Tensor | None:
    return _held(stream, parameter, MOMENTS)


def _held(stream: Stream, parameter: Tensor, names: tuple[str, ...]) -> Tensor | None:
    for optimizer in stream.optimizers:
        state = optimizer.state.get(parameter)
        held = [state.get(name) for name in names] if isinstance(state, Mapping) else []
        for value in held:
            if isinstance(value, Tensor):
                return dense_values(value)
    return None


def _gradient(stream: Stream, at: int) -> Tensor | None:
    gradient = stream.parameters[at].grad if at < len(stream.parameters) else None
    values = dense_values(gradient) if gradient is not None else None
    return _sampled(values) if values is not None else None


def _sampled(values: Tensor) -> Tensor:
    flat = values.detach().reshape(-1)
    return flat[:: -(-flat.numel() // SAMPLED_MAX) | 1].float().clone()


def _misplaced(one: _Equal) -> Iterator[tuple[int, int, float, float]]:
    """Parameter, the one whose gradients its moments fit, and both correlations: with that one's and with its own."""
    table = (_logarithms(one.moments) @ _logarithms(one.squares).T / one.moments.shape[1]).cpu()
    for own in range(len(table)):
        other = int(table[own].argmax())
        fits, mine = float(table[own, other]), float(table[own, own])
        if fits >= FITS_MIN and fits - mine >= APART_MIN and int(table[:, other].argmax()) == own:
            yield own, other, fits, mine


def _logarithms(values: Tensor) -> Tensor:
    """Logarithms with mean 0 and variance 1 in each row."""
    logs = (values + 1e-9 * values.mean(1, keepdim=True) + 1e-38).log()
    logs = logs - logs.mean(1, keepdim=True)
    return logs / logs.square().mean(1, keepdim=True).sqrt().clamp_min(1e-6)
