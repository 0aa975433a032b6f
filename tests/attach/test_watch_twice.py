"""A call of ``watch`` while a watch is open shares it, and never changes what the open one does."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import steadytrain
from scripts import run_script
from steadytrain.storage.run_folder import open_run


def loss_of(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    return model(batch).square().mean()


def other_loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    return model(batch).abs().mean()


def made() -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Linear(4, 1)
    return model, torch.optim.SGD(model.parameters(), lr=0.01)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 3) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        loss_of(model, torch.randn(8, 4)).backward()
        optimizer.step()


@pytest.mark.parametrize(
    "same", [{}, {"policy": "observe"}, {"policy": "observe", "level": "full", "to": "none", "name": "run"}]
)
def test_a_second_watch_that_asks_for_nothing_else_shares_the_first(tmp_path: Path, same: dict[str, object]) -> None:
    model, optimizer = made()
    first = {"policy": "observe", "level": "full", "to": ("none",), "name": "run", "runs_dir": tmp_path}
    with steadytrain.watch(model, optimizer, **first) as outer:
        with steadytrain.watch(model, optimizer, **same) as inner:
            train(model, optimizer)
        train(model, optimizer)
        assert inner.run_dir == outer.run_dir == tmp_path / "run"
    run = open_run(tmp_path / "run")
    assert len(run.scalars()) == 6
    assert run.description["policy"] == "observe"


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"policy": "observe"}, "policy 'observe', but the open watch has policy 'stop'"),
        ({"level": "full", "rewind_mb": 1}, "level 'full', rewind_mb 1, but the open watch has level 'light', rewind"),
        ({"step_fn": other_loss}, "another step_fn, but the open watch has its own"),
    ],
)
def test_a_second_watch_that_asks_for_something_else_is_refused(
    tmp_path: Path, other: dict[str, object], named: str
) -> None:
    model, optimizer = made()
    with steadytrain.watch(model, optimizer, runs_dir=tmp_path, level="light", step_fn=loss_of):
        with pytest.raises(steadytrain.UsageError, match=named):
            steadytrain.watch(model, optimizer, **other)
        train(model, optimizer)


def test_a_second_watch_leaves_the_step_function_of_the_first(tmp_path: Path) -> None:
    model, optimizer = made()
    with steadytrain.watch(model, optimizer, runs_dir=tmp_path, step_fn=loss_of) as first:
        before = first._watcher.step_batches
        steadytrain.watch(model, optimizer)
        steadytrain.watch(model, optimizer, step_fn=loss_of)
        assert first._watcher.step_batches is before is not None


SCRIPT = """
    import torch
    import steadytrain

    def loss_of(model, batch):
        return model(batch).square().mean()

    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(2):
        with steadytrain.watch(model, optimizer, policy="observe", level="light", step_fn=loss_of) as watch:
            optimizer.zero_grad()
            loss_of(model, torch.randn(8, 4)).backward()
            optimizer.step()
    print(watch._watcher.step_batches is not None)
"""


def test_under_steadytrain_run_the_options_of_the_command_hold_and_the_difference_is_reported(tmp_path: Path) -> None:
    ended = run_script(tmp_path, SCRIPT, "--level", "light")
    assert ended.status == 0
    assert ended.out == "True\n"
    assert ended.run.description["policy"] == "stop"
    notes = [line for line in ended.err.splitlines() if "note: watch" in line]
    assert notes == [
        "steadytrain: note: watch: asked for policy 'observe', but the open watch has policy 'stop' from "
        "`steadytrain run`, which is kept"
    ]


def test_a_watch_prints_as_what_it_watches(tmp_path: Path) -> None:
    model, optimizer = made()
    with steadytrain.watch(model, optimizer, runs_dir=tmp_path, name="a <b>") as watch:
        assert repr(watch) == "<Watch of 'a <b>': policy stop, steps none yet, symptoms none, state open>"
        train(model, optimizer)
    assert repr(watch) == "<Watch of 'a <b>': policy stop, steps main 3, symptoms none, state closed>"
    page = watch._repr_html_()
    assert "a &lt;b&gt;" in page
    assert "<b>" not in page
    assert "at 3 steps" in page


def test_an_option_that_there_is_not_is_a_type_error(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"watch\(\) got an unexpected keyword argument 'polcy'"):
        steadytrain.watch(polcy="stop")  # type: ignore[call-arg]
