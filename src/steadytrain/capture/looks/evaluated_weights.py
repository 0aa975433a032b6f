"""Measures how far the weights that are evaluated are still those that the training began with, and whether they stay.

An average of the weights may be a dictionary of tensors that the script puts into the model for an evaluation, and
takes out after it. Then the model is called without gradients with other weights than those that the next step trains.
If it is not taken out, the next step trains the evaluated weights, many updates away from those of the step before.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from steadytrain.capture.looks.model_copies import ends_of, sampled, samples_of, share_of_way

MODELS_MAX, EVALUATIONS_MAX, CALLS_MAX, OTHERS_MAX = 64, 64, 256, 8
"""Models that are read, evaluations of each, calls of one of them, and weights that they may differ in."""

SAME_SHARE = 1e-3
"""A smaller share of the way that the trained weights have come is none."""

FIT_MIN = 0.9
"""Share of the distance that the way back to the first weights explains: noise and another model lie elsewhere."""


CALLS_KEPT, UPDATES_MIN, LEFT_MIN = 32, 4, 8.0
"""Calls with gradients between which ways are kept, how many of these must be updates, and how many of the longest of
them a way is that no update made."""


@dataclass
class _Model:
    """The values of a model at its first call with gradients, those of the evaluation that goes on, and what was
    found. ``trained`` are those of its last call with gradients, once it has been evaluated, ``ends`` the parameters
    that they are of, and ``ways`` the ways between such calls, most of them updates. ``left_in`` is the way to the
    weights that an evaluation left, in updates."""

    name: str
    module: weakref.ref[nn.Module]
    first: tuple[Tensor, ...]
    evaluated: list[tuple[Tensor, ...]] = field(default_factory=list)
    calls: int = 0
    shares: list[float] = field(default_factory=list)
    ends: tuple[weakref.ref[Tensor], ...] = ()
    trained: tuple[Tensor, ...] = ()
    ways: deque[Tensor] = field(default_factory=lambda: deque(maxlen=CALLS_KEPT))
    left_in: float = 0.0
    was_evaluated: bool = False


class EvaluatedWeights:
    """Serves all models of a run. It reads a few values at the first call of an evaluation, and after it."""

    def __init__(self) -> None:
        self._models: weakref.WeakKeyDictionary[nn.Module, _Model] = weakref.WeakKeyDictionary()
        self._found: list[_Model] = []
        self._pending: list[_Model] = []

    def called(self, module: nn.Module) -> None:
        """The script calls a model with gradients."""
        one = self._models.get(module)
        if one is None and len(self._found) < MODELS_MAX:
            one = self._models[module] = _Model(type(module).__name__, weakref.ref(module), sampled(module))
            self._found.append(one)
        elif one is not None and one.was_evaluated:
            now = _now(one, module)
            _follow(one, now)
            if one.evaluated:
                _resolve(one, now)

    def called_aside(self, module: nn.Module) -> None:
        """The script calls a model without gradients."""
        one = self._models.get(module)
        if one is None or len(one.shares) >= EVALUATIONS_MAX or one.calls >= CALLS_MAX:
            return
        one.calls += 1
        one.was_evaluated = True
        values = sampled(module)
        self._pending += [] if one.evaluated else [one]
        if len(one.evaluated) < OTHERS_MAX and not (one.evaluated and _are_same(one.evaluated[-1], values)):
            one.evaluated.append(values)

    def updated(self) -> None:
        """Weights are about to be updated: what was evaluated and not trained on since has nothing to compare with."""
        for one in self._pending:
            one.evaluated, one.calls = [], 0
        self._pending.clear()

    def left_in(self) -> Iterator[tuple[str, float]]:
        """``left-in:CLASS``, before an update: the model trains the weights that were evaluated, this many updates away
        from those that it had trained."""
        for one in self._found:
            if one.left_in:
                yield f"left-in:{one.name}", one.left_in
                one.left_in = 0.0

    def rows(self) -> Iterator[tuple[str, float]]:
        """``first-weights:CLASS``, at the end of the script, is the share of the way back to its first weights at which
        a model was evaluated, in the last two evaluations at least. One with several weights counts by the newest."""
        for one in self._found:
            module = one.module()
            if one.evaluated and module is not None:
                _resolve(one, sampled(module))
            if one.shares and (share := min(one.shares[-2:])) > 0.0:
                yield f"first-weights:{one.name}", share


def _now(one: _Model, module: nn.Module) -> tuple[Tensor, ...]:
    """The values of the model, in each of its calls: its parameters are searched once."""
    held = [reference() for reference in one.ends]
    known = [parameter for parameter in held if parameter is not None]
    if len(known) == len(held) > 0:
        return samples_of(known)
    ends = ends_of(module)
    one.ends = tuple(map(weakref.ref, ends))
    return samples_of(ends)


@torch.no_grad()
def _follow(one: _Model, now: tuple[Tensor, ...]) -> None:
    """Compare the values with those of the last call with gradients: one update made the way, or an evaluation. Reads
    the device only after an evaluation."""
    before, one.trained = one.trained, now
    if [part.shape for part in before] != [part.shape for part in now] or len({part.device for part in now}) != 1:
        return
    way = torch.cat([left.double() - right.double() for left, right in zip(before, now, strict=True)]).norm()
    if not one.evaluated:
        one.ways.append(way)
    elif one.ways and _are_same(one.evaluated[-1], now):
        updates = [length for length in torch.stack(list(one.ways)).tolist() if length > 0.0]
        if len(updates) >= UPDATES_MIN and float(way) > LEFT_MIN * max(updates):
            one.left_in = float(way) / max(updates)


@torch.no_grad()
def _resolve(one: _Model, now: tuple[Tensor, ...]) -> None:
    """Compare the evaluated values with those that are trained on from here."""
    shown, one.evaluated, one.calls = one.evaluated, [], 0
    known = [_share(one.first, each, now) for each in shown]
    one.shares += [min(known)] if now and known else []


def _are_same(one: tuple[Tensor, ...], other: tuple[Tensor, ...]) -> bool:
    return len(one) == len(other) and all(map(torch.equal, one, other))


def _share(start: tuple[Tensor, ...], shown: tuple[Tensor, ...], now: tuple[Tensor, ...]) -> float:
    """How far back ``shown`` lies from ``now`` on the way to ``start``; 0 if it does not lie on it."""
    shapes = [[part.shape for part in parts] for parts in (start, shown, now)]
    if not now or shapes.count(shapes[0]) < len(shapes):
        return 0.0
    first, other, there = (torch.cat([part.double() for part in parts]) for parts in (start, shown, now))
    way, distance = first - there, other - there
    share, explained = share_of_way(distance, way)
    return share if share > SAME_SHARE and explained >= FIT_MIN else 0.0
