"""The lines that changed a batch between the loader and the model call are named, from the source alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from steadytrain.capture.incident.message import sample_lines
from steadytrain.capture.step.input_recorder import MicroBatch, record_call
from steadytrain.capture.step.late_lines import lines_before
from steadytrain.core.incident import Samples

Loop = Callable[[nn.Module, Tensor, Tensor], Any]


class Net(nn.Module):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return x if mask is None else x * mask


def augment(x: Tensor) -> Tensor:
    return x.log()


def corrupt(x: Tensor) -> None:
    x[0] = torch.nan


def assigned(net: nn.Module, x: Tensor, y: Tensor) -> None:
    for _ in range(1):
        x = augment(x)  # named
        y = y.exp()
        nn.functional.mse_loss(net(x), y)


def moved_afterwards(net: nn.Module, x: Tensor, y: Tensor) -> None:
    for _ in range(1):
        logs = augment(x)  # named
        logs = logs.to("cpu").view(-1)
        net(logs.contiguous())


def inside_the_call(net: nn.Module, x: Tensor, y: Tensor) -> None:
    for _ in range(1):
        y = y + 1
        net(augment(x))  # named


def in_place(net: nn.Module, x: Tensor, y: Tensor) -> None:
    for _ in range(1):
        x[0] = torch.nan  # named
        net(x)


def by_a_function(net: nn.Module, x: Tensor, y: Tensor) -> None:
    for _ in range(1):
        print(x.shape)
        corrupt(x)  # named
        net(x)


def as_a_keyword(net: nn.Module, x: Tensor, y: Tensor) -> None:
    for _ in range(1):
        x = x + 1
        mask = augment(y)  # named
        net(x, mask=mask)


def from_elsewhere(net: nn.Module, x: Tensor, y: Tensor) -> None:
    net(x)


def one_call(loop: Loop) -> MicroBatch:
    """The call of the net, as a watcher records it."""
    calls: list[MicroBatch] = []

    def keep(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        call = record_call(module, args, kwargs, None)
        calls.append(replace(call, frames=call.frames[1:]))  # this function stands where the watcher does

    net = Net()
    net.register_forward_pre_hook(keep, with_kwargs=True)
    loop(net, torch.tensor([0.0, 1.0]), torch.tensor([0.0, 2.0]))
    return calls[0]


@pytest.mark.parametrize("loop", [assigned, moved_afterwards, inside_the_call, in_place, by_a_function, as_a_keyword])
def test_the_line_that_changed_the_input_is_named(loop: Loop) -> None:
    (line,) = lines_before(one_call(loop))
    assert line.endswith("# named")
    assert f"{Path(__file__).name}:" in line


def test_what_the_function_does_not_show_is_not_named() -> None:
    assert lines_before(one_call(from_elsewhere)) == ()


def test_a_line_of_an_installed_package_is_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("steadytrain.capture.step.late_lines.INSTALLED", (Path(__file__).name,))
    assert lines_before(one_call(assigned)) == ()


def test_no_index_is_given_for_what_came_in_later() -> None:
    samples = Samples(0, "Houses", (7, 8, 9), later_rows=(2,), later_lines=("train.py:4   x = augment(x)",))
    said = "\n".join(sample_lines([samples]))
    assert "row 2 of the batch" in said
    assert "train.py:4   x = augment(x)" in said
    assert "Houses[" not in said
