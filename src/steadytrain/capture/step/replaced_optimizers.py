"""Recognizes an optimizer that takes the place of another one: made later, for the same parameters.

A script makes its optimizer anew at the end of a warm-up, for fine-tuning, or in each epoch. If the parameters are as
the old optimizer left them, that is one training, and its step numbers continue. A fold, a client or a task that
gives its model other weights is a training of its own, and so is that of an optimizer that was made before the other
one stepped, or beside one that still steps.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from steadytrain.capture.hooks.manual_updates import UpdateByHand
from steadytrain.capture.hooks.model_discovery import optimizer_parameters
from steadytrain.capture.step.optimizer_streams import Stream

SHARED_MIN = 0.95
"""Share of the elements of both optimizers that they have in common: a head alone is another training."""

KEPT_STEPS_MIN = 2
"""Steps of an optimizer that the script keeps before another one may take its place. It may only wait for its turn."""

REPLACED_MAX = 32
"""Replacements that are recorded with their steps; of more only the number."""


@dataclass(frozen=True)
class _Expected:
    """``optimizer`` may take the place of the one with the id ``old`` in ``stream``, since its step ``step``."""

    optimizer: weakref.ref[torch.optim.Optimizer]
    stream: Stream
    old: int
    step: int


class Replacements:
    """The optimizers that may take the place of another one at their first step."""

    def __init__(self) -> None:
        self._expected: dict[int, _Expected] = {}
        self._replaced: dict[int, weakref.ref[torch.optim.Optimizer]] = {}

    def made(
        self, optimizer: torch.optim.Optimizer, streams: Sequence[Stream], dropped: Callable[[], Callable[[], None]]
    ) -> Stream | None:
        """The script has made ``optimizer``. Returns the stream in which it may take the place of another one.

        ``dropped`` returns what is called if it is freed before it steps.
        """
        self._expected.pop(id(optimizer), None)
        if isinstance(optimizer, UpdateByHand):
            return None
        found = [(stream, one) for stream in streams for one in stream.optimizers if _are_alike(one, optimizer)]
        if len(found) != 1 or not found[0][0].own_steps or not found[0][0].writes.are_its_own(found[0][0]):
            return None
        key, (stream, old) = id(optimizer), found[0]

        def gone(held: weakref.ref[torch.optim.Optimizer]) -> None:
            if key in self._expected and self._expected[key].optimizer is held:
                del self._expected[key]
                dropped()()

        self._expected[key] = _Expected(weakref.ref(optimizer, gone), stream, id(old), stream.step)
        return stream

    def awaited(self, stream: Stream) -> bool:
        """Whether an optimizer that has not stepped may take a place in ``stream``."""
        return any(one.stream is stream and one.optimizer() is not None for one in self._expected.values())

    def stepped(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer of a stream steps: nobody else takes its place."""
        for key in [key for key, one in self._expected.items() if one.old == id(optimizer)]:
            del self._expected[key]

    def place_of(self, optimizer: torch.optim.Optimizer, *, joins: Stream | None = None) -> Stream | None:
        """The stream in which ``optimizer`` takes the place of another one at its first step, None if in none.

        ``joins``: it steps after the optimizers of this stream, without a backward of its own. Then it takes a place
        only if it was made before their step.
        """
        one = self._expected.pop(id(optimizer), None)
        if one is None or one.optimizer() is not optimizer:
            return None
        stream = one.stream
        if joins is not None:
            return stream if stream is joins and one.step < stream.step else None
        held = [each() for each in stream.joined if isinstance(each, weakref.ref)]  # the others are stand-ins
        if any(id(old) == one.old for old in held if old is not None) and stream.own_steps < KEPT_STEPS_MIN:
            return None
        return stream if stream.writes.are_its_own(stream) else None

    def put(self, optimizer: torch.optim.Optimizer, stream: Stream) -> torch.optim.Optimizer | None:
        """Give ``optimizer`` its place in ``stream``; the optimizer that had it is returned if it is known."""
        old: torch.optim.Optimizer | None = None
        for at, held in enumerate(stream.joined):
            one = held()
            if one is not None and _are_alike(one, optimizer):
                stream.joined[at], old = weakref.ref(optimizer), one
                break
        else:
            gone = next((at for at, held in enumerate(stream.joined) if held() is None), len(stream.joined))
            stream.joined[gone : gone + 1] = [weakref.ref(optimizer)]
            stream.remains = stream.remains[1:]
        if old is not None:
            self._replaced = {key: each for key, each in self._replaced.items() if each() is not None}
            self._replaced[id(old)] = weakref.ref(old)
        return old

    def comes_back(self, optimizer: torch.optim.Optimizer) -> bool:
        """Whether ``optimizer`` was taken for one that steps no more."""
        held = self._replaced.pop(id(optimizer), None)
        return held is not None and held() is optimizer

    def clear(self) -> None:
        self._expected, self._replaced = {}, {}


class ReplacedFact:
    """The fact of the run about optimizers that were replaced: how many, and the first of them.

    ``step`` is the first step of the new optimizer.
    """

    NAME = "replaced_optimizers"

    def __init__(self) -> None:
        self._entries: list[dict[str, object]] = []
        self._count = 0

    def add(self, stream: Stream, old: torch.optim.Optimizer | None, new: torch.optim.Optimizer) -> bool:
        """Returns whether there is more to record."""
        self._count += 1
        if self._count & (self._count - 1) and self._count > REPLACED_MAX:
            return False
        if len(self._entries) < REPLACED_MAX:
            kinds = {"old": type(old).__name__ if old is not None else "", "new": type(new).__name__}
            rates = {"old_rate": _rate(old), "new_rate": _rate(new)}
            self._entries.append({"stream": stream.name, "step": stream.step + 1, **kinds, **rates})
        return True

    def came_back(self) -> None:
        """The newest one was none: its old optimizer steps again."""
        self._count -= 1
        if self._count < len(self._entries):
            self._entries.pop()

    @property
    def value(self) -> dict[str, object]:
        return {"count": self._count, "first": list(self._entries)}


def _rate(optimizer: torch.optim.Optimizer | None) -> float | None:
    rate = next((group.get("lr") for group in optimizer.param_groups), None) if optimizer is not None else None
    return float(rate) if isinstance(rate, (int, float)) else None


def _are_alike(one: torch.optim.Optimizer, other: torch.optim.Optimizer) -> bool:
    """Whether two optimizers have almost the same parameters."""
    if one is other:
        return False
    there = {id(parameter): parameter for parameter in _trained(one)}
    here = {id(parameter): parameter for parameter in _trained(other)}
    common = sum(there[key].numel() for key in there.keys() & here.keys())
    most = max(sum(parameter.numel() for parameter in held.values()) for held in (there, here))
    return most > 0 and common >= SHARED_MIN * most


def _trained(optimizer: torch.optim.Optimizer) -> Iterator[Tensor]:
    """The parameters that need a gradient: a frozen one may be left out of the next optimizer."""
    return (parameter for parameter in optimizer_parameters([optimizer]) if parameter.requires_grad)
