"""Follows batch norms that came with statistics of an earlier training: what they get now, and whether they move.

The first calls of a model say whether its first batch norm gets what its running statistics expect: images that are not
normalised as in the earlier training change mean and variance of nearly all channels. Later it shows whether the
statistics of a part that is frozen, with nothing in front of it that trains, have gone elsewhere.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from steadytrain.capture.hooks.model_discovery import named_places, plain_name
from steadytrain.capture.looks.running_statistics import channels_apart, has_statistics, statistics_of
from steadytrain.capture.step.optimizer_streams import Stream
from steadytrain.core.torch_private import IS_FUNCTORCH, PARAMETERS

FIRST_STEPS, MOVED_STEP = 4, 32
"""Steps in which the inputs of the first norm are compared, and the one in which statistics are compared."""

TRACKED_MIN, VARIANCE_MAX = 32.0, 0.5
"""A norm was trained before if it has tracked so many batches, or if a variance of it is below that."""

MODELS_MAX, NORMS_MAX = 4, 32
MEANS_AWAY, VARIANCE_RATIO = 3.0, 4.0
"""A channel does not get what is expected if its mean is so many standard deviations away, or its variance so many
times as large or as small."""

MOVED_MEANS, MOVED_RATIO = 0.25, 1.25


@dataclass
class _Norm:
    name: str
    module: weakref.ref[nn.Module]
    was: Tensor
    frozen: bool


@dataclass
class _Model:
    """``before`` are the statistics of the first norm before the last call, in training mode, and its calls."""

    norms: list[_Norm]
    before: Tensor | None = None
    calls: int = 0
    steps: int = 0


@dataclass
class LoadedNorms:
    """Serves all streams of a run."""

    _models: weakref.WeakKeyDictionary[nn.Module, _Model] = field(default_factory=weakref.WeakKeyDictionary)

    @torch.no_grad()
    def called(self, module: nn.Module) -> None:
        """The script calls a model with gradients."""
        one = self._models.get(module)
        if one is None:
            if len(self._models) >= MODELS_MAX or any(is_lazy(each) for each in module.parameters()):
                return
            norms = _loaded(module)
            if norms is None:
                return
            one = self._models[module] = _Model(norms)
        if one.norms and one.steps < FIRST_STEPS:
            first = one.norms[0].module()
            one.calls += 1
            before = statistics_of(first) if first is not None and first.training else None
            one.before = None if before is None or IS_FUNCTORCH(before) else before

    @torch.no_grad()
    def rows(self, stream: Stream) -> Iterator[tuple[str, float]]:
        """``unexpected:NORM`` is the share of the channels of the first loaded norm whose batch is not what its
        statistics expect, in each of the first steps. ``frozen-norm-moved:NORM`` is the largest share of the channels
        of a frozen norm whose statistics have moved in the first 32 steps."""
        if stream.own_steps >= MOVED_STEP:
            return
        models = [self._models[root] for root in stream.roots() if root in self._models]
        for one in models:
            if one.norms and one.calls == 1 and one.before is not None:
                yield from _unexpected(one.norms[0], one.before)
            one.before, one.calls, one.steps = None, 0, one.steps + 1
        moved = {}
        for norm in [norm for one in models for norm in one.norms if norm.frozen] if self._is_due(stream) else ():
            module = norm.module()
            if module is not None and module.training:
                moved[norm.name] = _share(statistics_of(module), norm.was, MOVED_MEANS, MOVED_RATIO)
        if moved:
            name = max(moved, key=lambda one: moved[one])
            yield f"frozen-norm-moved:{name}", moved[name]

    def _is_due(self, stream: Stream) -> bool:
        return stream.own_steps + 1 == MOVED_STEP


def _loaded(model: nn.Module) -> list[_Norm] | None:
    """The norms of ``model`` that were trained before. Reads the device once. None inside a function transform, where
    statistics have no values."""
    places: list[tuple[str, nn.Module, bool]] = []
    frozen, matrices = True, False
    for path, module in named_places(model):
        own = [one for one in PARAMETERS.of(module).values() if one is not None]
        frozen = frozen and not any(one.requires_grad for one in own)
        matrices = matrices or any(one.dim() > 1 for one in own)
        if has_statistics(module) and len(places) < NORMS_MAX:
            places.append((plain_name(path) or type(module).__name__, module, frozen and matrices and bool(own)))
    if not places:
        return []
    numbers = torch.stack([torch.stack([_tracked(one), statistics_of(one)[1].min()]) for _, one, _ in places])
    if IS_FUNCTORCH(numbers):
        return None
    told = numbers.tolist()
    return [
        _Norm(name, weakref.ref(module), statistics_of(module), still)
        for (name, module, still), (tracked, least) in zip(places, told, strict=True)
        if tracked >= TRACKED_MIN or least < VARIANCE_MAX
    ]


def _tracked(norm: nn.Module) -> Tensor:
    """The batches that it has tracked, 0 where that is unknown."""
    count = getattr(norm, "num_batches_tracked", None)
    return count.reshape(()).float() if isinstance(count, Tensor) else statistics_of(norm).new_zeros(())


def _unexpected(norm: _Norm, before: Tensor) -> Iterator[tuple[str, float]]:
    """The batch's own statistics follow from the step of the running ones."""
    module = norm.module()
    momentum = getattr(module, "momentum", None)
    if module is not None and module.training and momentum:
        batch = before + (statistics_of(module) - before) / momentum
        yield f"unexpected:{norm.name}", _share(batch, before, MEANS_AWAY, VARIANCE_RATIO)


def _share(own: Tensor, there: Tensor, means: float, ratio: float) -> float:
    return float(channels_apart(own, there, means=means, ratio=ratio).double().mean())
