"""Which backward passes count as those of a training loop whose updates have stopped."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import torch
from torch import nn

from steadytrain.capture.looks.stopped_updates import StoppedUpdates
from steadytrain.capture.step.optimizer_streams import Stream


class Loop:
    """A loop of ``updates`` updates of ``parts`` backward passes each; ``told`` collects all rows."""

    def __init__(self, updates: int = 32, parts: int = 1) -> None:
        self.weight = nn.Parameter(torch.zeros(4))
        self.streams = cast("list[Stream]", [SimpleNamespace(parameters=[self.weight])])
        self.look = StoppedUpdates()
        self.told: dict[str, float] = {}
        for _ in range(updates):
            for _ in range(parts):
                self.backward()
            self.update()

    def backward(self, **_: Any) -> None:
        self.look.zeroed()
        self.told |= dict(self.look.backward_begins(self.streams))

    def update(self) -> None:
        with torch.no_grad():
            self.weight += 1.0
        self.told |= dict(self.look.updated())

    def elsewhere(self) -> None:
        self.told |= dict(self.look.backward_begins(self.streams))


def named(told: dict[str, float]) -> dict[str, float]:
    return {name.partition(":")[0]: value for name, value in told.items()}


def train(loop: Loop, *, passes: int, moves: bool = False) -> None:
    for _ in range(passes):
        step(loop)
        if moves:
            with torch.no_grad():
                loop.weight += 1.0


def step(loop: Loop) -> None:
    loop.backward()


def looped(updates: int, parts: int = 1) -> Loop:
    loop = Loop(updates=0)
    for _ in range(updates):
        train(loop, passes=parts)
        loop.update()
    return loop


def test_passes_of_the_loop_without_an_update_are_counted() -> None:
    loop = looped(32)
    train(loop, passes=300)
    assert named(loop.told) == {"without-update": 256.0, "discarded": 255.0}


def test_an_update_afterwards_is_told() -> None:
    loop = looped(32)
    train(loop, passes=100)
    loop.update()
    assert named(loop.told)["updates-again"] == 100.0


def test_passes_of_other_lines_do_not_count() -> None:
    loop = looped(32)
    for _ in range(300):
        loop.elsewhere()
    assert loop.told == {}


def test_nor_do_those_of_parameters_that_move() -> None:
    loop = looped(32)
    train(loop, passes=300, moves=True)
    assert loop.told == {}


def test_nor_does_an_accumulation_of_the_usual_length() -> None:
    loop = looped(32, parts=40)
    train(loop, passes=300)
    assert loop.told == {}
    train(loop, passes=100)
    assert named(loop.told)["without-update"] == 320.0


def test_a_young_run_is_not_judged() -> None:
    loop = looped(8)
    train(loop, passes=300)
    assert loop.told == {}
