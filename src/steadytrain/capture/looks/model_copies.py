"""Finds the copies of the models that a stream trains, and takes samples of their values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor, nn

from steadytrain.capture.hooks.model_discovery import is_made, living_optimizers, optimizer_parameters
from steadytrain.capture.step.optimizer_streams import Stream
from steadytrain.capture.tensors.dense import dense_values
from steadytrain.core.living_objects import instances
from steadytrain.core.torch_private import CHILDREN

PART_MIN = 0.05
"""A trained module counts as a model if it holds this share of the elements that its optimizer holds."""

SAMPLED_MAX = 32

ModelKind = tuple[type[nn.Module], tuple[torch.Size, ...]]
"""The class of a model and the shapes of its parameters."""


def copies_of(stream: Stream) -> list[nn.Module]:
    """The living modules that are built as a model that ``stream`` trains, and that no optimizer holds."""
    models = {kind_of(part) for part in models_of(stream)}
    trained = _ids(stream.parameters)
    built = {id(kind): kind for kind, _ in models}
    alike = [one for one in instances(*built.values()) if is_made(one) and kind_of(one) in models]
    found = [one for one in alike if not trained & _ids(one.parameters())]
    if not found:
        return []
    held = _ids(optimizer_parameters(living_optimizers()))
    return [one for one in found if not held & _ids(one.parameters())]


def _parts(module: nn.Module, trained: set[int], least: float, seen: set[int]) -> Iterator[nn.Module]:
    """``module`` and the modules in it that are trained as a whole and hold ``least`` elements."""
    parameters = list(module.parameters())
    if id(module) in seen or sum(one.numel() for one in parameters) < least or not parameters:
        return
    seen.add(id(module))
    if all(id(one) in trained for one in parameters):
        yield module
    for child in CHILDREN.of(module).values():
        if child is not None:
            yield from _parts(child, trained, least, seen)


def models_of(stream: Stream) -> list[nn.Module]:
    """The modules that ``stream`` trains as a whole, and that hold a good part of what it trains."""
    trained = {id(one) for one in stream.parameters}
    least = PART_MIN * sum(one.numel() for one in stream.parameters)
    return [part for root in stream.roots() for part in _parts(root, trained, least, set())]


def kind_of(module: nn.Module) -> ModelKind:
    try:
        return type(module), tuple(one.shape for one in module.parameters())
    except (AttributeError, RuntimeError):  # its __init__ has not run, or its parameters have no shape yet
        return type(module), ()


def _ids(parameters: Iterable[Tensor]) -> set[int]:
    return {id(one) for one in parameters}


def sampled(module: nn.Module) -> tuple[Tensor, ...]:
    """A few values of the first and the last parameter, as copies; none where they have no plain values."""
    return samples_of(ends_of(module))


def ends_of(module: nn.Module) -> tuple[Tensor, ...]:
    """The first and the last parameter; none of a module without parameters. Takes a while for one of thousands."""
    parameters: Sequence[Tensor] = list(module.parameters())
    return (parameters[0], parameters[-1]) if parameters else ()


@torch.no_grad()
def samples_of(parameters: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """A few values of each of these, as copies. Waits for no accelerator."""
    found = [dense_values(one) for one in parameters]
    plain = [one.reshape(-1) for one in found if one is not None]
    return tuple(one[:: -(-one.numel() // SAMPLED_MAX) or 1].float().clone() for one in plain)


def share_of_way(moved: Tensor, way: Tensor) -> tuple[float, float]:
    """The share of ``way`` that ``moved`` makes, and how much of ``moved`` that explains, up to 1; 0 without either."""
    length, far = float(way @ way), float(moved @ moved)
    share = float(moved @ way) / length if length else 0.0
    return share, share * share * length / far if far else 0.0
