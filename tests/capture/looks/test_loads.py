"""What loads pass over, told at the update that follows, and loads that look like it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from steadytrain.core.model import Severity
from steadytrain.detectors import ScriptRule
from steadytrain.grouping.catalog import declared
from watching import watching

Load = Callable[[nn.Module, dict[str, Any]], None]


class Net(nn.Module):
    """A body of two layers and a head."""

    def __init__(self, body: str = "body", classes: int = 3, head: str = "head") -> None:
        super().__init__()
        self.names = body, head
        self.add_module(body, nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU()))
        self.add_module(head, nn.Linear(16, classes))

    def forward(self, x: Tensor) -> Tensor:
        body, head = self.names
        return self.get_submodule(head)(self.get_submodule(body)(x))


def found(folder: Path, load: Load, *, made: Callable[[], nn.Module] = Net, late: bool = False) -> dict[str, Severity]:
    """What is reported of a training of ``made`` that does ``load`` with the state of a ``Net``, before or in it."""
    torch.manual_seed(0)
    saved = Net().state_dict()
    with watching(folder, "observe") as watcher:
        model = made()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        for at in range(12):
            if at == (5 if late else 0):
                load(model, saved)
            x = torch.randn(24, 8)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), x[:, :3].argmax(1)).backward()
            optimizer.step()
    rules = [one for one in watcher.symptoms if issubclass(declared(one.name), ScriptRule)]
    told = [one for one in rules if one.name != "replaced-weights"]  # a load in the middle, whatever it loads
    assert {one.first_step for one in told} <= {6 if late else 1}
    return {one.name: one.severity for one in told}


def prefixed(model: nn.Module, saved: dict[str, Any]) -> None:
    model.load_state_dict({f"module.{name}": one for name, one in saved.items()}, strict=False)


def compiled(model: nn.Module, saved: dict[str, Any]) -> None:
    model.load_state_dict({f"_orig_mod.{name}": one for name, one in saved.items()}, strict=False)


def whole_checkpoint(model: nn.Module, saved: dict[str, Any]) -> None:
    model.load_state_dict({"model": saved, "epoch": 3, "optimizer": {"state": {}}}, strict=False)


def of_something_else(model: nn.Module, saved: dict[str, Any]) -> None:
    model.load_state_dict({"conv.weight": torch.ones(3, 3), "conv.bias": torch.ones(3)}, strict=False)


def as_it_is(model: nn.Module, saved: dict[str, Any]) -> None:
    model.load_state_dict(saved, strict=False)


def mended_at_once(model: nn.Module, saved: dict[str, Any]) -> None:
    prefixed(model, saved)
    model.load_state_dict(saved)


def copied_by_hand(model: nn.Module, saved: dict[str, Any]) -> None:
    prefixed(model, saved)
    with torch.no_grad():
        for name, one in model.state_dict().items():
            one.copy_(saved[name])


def without_the_head(model: nn.Module, saved: dict[str, Any]) -> None:
    model.load_state_dict({name: one for name, one in saved.items() if "head" not in name}, strict=False)


def of_another_head(model: nn.Module, saved: dict[str, Any]) -> None:
    others = {"classifier.weight": torch.ones(10, 16), "classifier.bias": torch.ones(10)}
    model.load_state_dict({name: one for name, one in saved.items() if "head" not in name} | others, strict=False)


def body_alone(model: nn.Module, saved: dict[str, Any]) -> None:
    part = model.get_submodule("body")
    part.load_state_dict({name.removeprefix("body."): one for name, one in saved.items() if "body" in name})


def renamed_body() -> Net:
    return Net("layers")


def new_head() -> Net:
    return Net(head="classifier")


SICK = [(prefixed, Net), (compiled, Net), (whole_checkpoint, Net), (of_something_else, Net), (as_it_is, renamed_body)]
HEALTHY = [as_it_is, mended_at_once, copied_by_hand, without_the_head, of_another_head, body_alone]


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(("load", "made"), SICK)
def test_weights_of_other_names_are_told(load: Load, made: Callable[[], Net], late: bool, tmp_path: Path) -> None:
    assert found(tmp_path / "run", load, made=made, late=late) == {"unloaded-weights": "warning"}


@pytest.mark.parametrize("load", HEALTHY)
def test_other_loads_are_not(load: Load, tmp_path: Path) -> None:
    assert found(tmp_path / "run", load) == {}


def test_a_new_head_of_equal_shape_is_a_note(tmp_path: Path) -> None:
    assert found(tmp_path / "run", as_it_is, made=new_head) == {"unloaded-weights": "note"}


def test_moments_of_other_parameters_are_told(tmp_path: Path) -> None:
    torch.manual_seed(0)
    with watching(tmp_path / "run", "observe") as watcher:
        model = Net()
        before = torch.optim.Adam(list(model.named_parameters()), lr=1e-3)
        after = torch.optim.Adam(reversed(list(model.named_parameters())))
        for at, optimizer in enumerate([before] * 3 + [after] * 8):
            if at == 3:
                state = before.state_dict()
                after.load_state_dict(state)
                for one in model.parameters():
                    after.state[one] |= {name: torch.zeros_like(one) for name in ("exp_avg", "exp_avg_sq")}
            x = torch.randn(24, 8)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), x[:, :3].argmax(1)).backward()
            optimizer.step()
    told = {one.name: one.severity for one in watcher.symptoms}
    assert told.get("incomplete-resume") == "warning"
