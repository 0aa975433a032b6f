"""An update that breaks weights itself is told of with its step and with the last good state, at any step."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import steadytrain
from steadytrain.capture.step import broken_updates
from steadytrain.storage.run_folder import Run, open_run

BREAKS = 12


class Careless(torch.optim.SGD):
    """Of another library: its step ``BREAKS`` divides by nothing."""

    def __init__(self, parameters: Iterator[nn.Parameter], *, breaks: int | None) -> None:
        super().__init__(parameters, lr=0.01)
        self._breaks, self._made = breaks, 0

    def step(self, closure: Any = None) -> Any:
        loss = super().step(closure)
        self._made += 1
        if self._made == self._breaks:
            with torch.no_grad():
                weight = self.param_groups[0]["params"][0]
                weight[0] /= torch.zeros_like(weight[0])
        return loss


def train(folder: Path, *, breaks: int | None = None, frozen_mask: bool = False) -> Run:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
    if frozen_mask:
        model.register_parameter("mask", nn.Parameter(torch.full((3,), -torch.inf)))
    optimizer = Careless(iter(model.parameters()), breaks=breaks)
    with steadytrain.watch(model, optimizer, runs_dir=folder, name="run"):
        for _ in range(2 * BREAKS):
            inputs = torch.randn(16, 6)
            optimizer.zero_grad()
            (model(inputs).squeeze(-1) - inputs.sum(-1)).pow(2).mean().backward()
            optimizer.step()
    return open_run(folder / "run")


def broken(run: Run) -> list[Any]:
    return [symptom for symptom in run.symptoms if symptom.name == "nonfinite-weight"]


@pytest.mark.parametrize("wrapped_twice", [False, True], ids=["", "torch hooks the step of its parent too"])
def test_it_is_caught_at_the_update_where_a_look_costs_little(
    wrapped_twice: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if wrapped_twice:
        torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    monkeypatch.setattr(broken_updates, "SHARE", math.inf)
    with pytest.raises(steadytrain.RunStopped):
        train(tmp_path, breaks=BREAKS)
    (symptom,) = broken(open_run(tmp_path / "run"))
    assert (symptom.severity, symptom.first_step, symptom.last_step) == ("critical", BREAKS, BREAKS)
    assert f"in the update of step {BREAKS} itself (Careless)" in symptom.message
    assert "the last good state is snapshots/step-000001" in symptom.message
    bundles = [path for path in open_run(tmp_path / "run").incidents if path.name.startswith("nonfinite-weight")]
    assert (bundles[0] / "replay" / "snapshots" / "step-000001").is_dir(), "it lies where the message says"
    assert f"since the update of step {BREAKS}" in capsys.readouterr().err


def test_else_the_next_loss_shows_it_and_the_message_names_the_update(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(broken_updates.UpdateLooks, "look", lambda *_: [])
    with pytest.raises(steadytrain.RunStopped):
        train(tmp_path, breaks=BREAKS)
    told = capsys.readouterr().err
    assert (
        f"since the update of step {BREAKS}, or what the script did after it; the last good state that is kept is"
        in told
    )
    assert "snapshots/step-000001" in told


@pytest.mark.parametrize("frozen_mask", [False, True], ids=["finite weights", "a mask of -Inf among the parameters"])
def test_healthy_updates_are_not_blamed(frozen_mask: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broken_updates, "SHARE", math.inf)
    assert [one for one in broken(train(tmp_path, frozen_mask=frozen_mask)) if "itself" in one.message] == []


def test_the_looks_stay_within_their_share(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    looked: list[int] = []

    class Weights:
        device = torch.device("cpu")
        step = 0

    def look(stream: Any) -> list[str]:
        now[0] += 0.001
        looked.append(stream.step)
        return []

    monkeypatch.setattr(broken_updates.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(broken_updates, "nonfinite_parameters", look)
    looks, stream = broken_updates.UpdateLooks(), Weights()
    for stream.step in range(1, 1001):
        now[0] += 0.01
        looks.look(stream)  # type: ignore[arg-type]
    assert 0.9 * broken_updates.SHARE < 0.001 * len(looked) / now[0] <= 1.2 * broken_updates.SHARE
