"""Optimizers that are no ``torch.optim.Optimizer``: guarded where their call can be caught."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import steadytrain
from steadytrain.capture.step.run_stopped import RunStopped
from steadytrain.storage.run_folder import open_run

STEPS, RATE, BAD = 5, 0.0625, 3


class SignDescent:
    """A plain class, such as research code has."""

    def __init__(self, parameters: Any, lr: float) -> None:
        self.params, self.lr = list(parameters), lr

    @torch.no_grad()
    def step(self) -> None:
        for parameter in self.params:
            parameter.sub_(self.lr * parameter.grad)


def by_object(model: nn.Module) -> Callable[[], None]:
    return SignDescent(model.parameters(), RATE).step


def in_place(model: nn.Module) -> Callable[[], None]:
    def update() -> None:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= RATE * parameter.grad

    return update


def through_data(model: nn.Module) -> Callable[[], None]:
    def update() -> None:
        for parameter in model.parameters():
            parameter.data -= RATE * parameter.grad

    return update


def train(model: nn.Module, update: Callable[[], None], *, bad: int = 0) -> list[torch.Tensor]:
    torch.manual_seed(1)
    for step in range(1, STEPS + 1):
        batch = torch.randn(6, 8)
        if step == bad:
            batch[2, 1] = float("nan")
        model(batch).pow(2).mean().backward()
        update()
        model.zero_grad()
    return [parameter.detach().clone() for parameter in model.parameters()]


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))


def test_a_plain_class_is_guarded_and_unchanged(tmp_path: Path) -> None:
    bare = net()
    expected = train(bare, by_object(bare))
    model, method = net(), SignDescent.step
    optimizer = SignDescent(model.parameters(), RATE)
    with steadytrain.watch(runs_dir=tmp_path, name="run"):
        found = train(model, lambda: optimizer.step())
    assert all(torch.equal(one, other) for one, other in zip(expected, found, strict=True))
    assert SignDescent.step is method
    window, facts = open_run(tmp_path / "run").scalars(), open_run(tmp_path / "run").facts
    assert window.steps.tolist() == list(range(1, STEPS + 1))
    assert set(window.signals["learning_rate"]) == {RATE}
    assert facts["notes"] == []


def test_a_plain_class_is_refused_a_bad_update(tmp_path: Path) -> None:
    model, method = net(), SignDescent.step
    optimizer = SignDescent(model.parameters(), RATE)
    with pytest.raises(RunStopped), steadytrain.watch(runs_dir=tmp_path, name="run"):
        train(model, lambda: optimizer.step(), bad=BAD)
    assert all(parameter.isfinite().all() for parameter in model.parameters())
    assert SignDescent.step is method


@pytest.mark.parametrize("update", [in_place, through_data])
def test_an_update_by_hand_is_told_of_at_the_first_that_is_guarded(
    update: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bare, model = net(), net()
    expected = train(bare, update(bare))
    told: list[str] = []
    change = update(model)

    def watched_change() -> None:
        told.append(capsys.readouterr().err)
        change()

    with steadytrain.watch(model, runs_dir=tmp_path, name="run"):
        found = train(model, watched_change)
    assert all(torch.equal(one, other) for one, other in zip(expected, found, strict=True))
    assert ["updated by hand after each backward" in one for one in told] == [False, False, True, False, False]
    assert "test_foreign_optimizers.py" in told[2]
    assert open_run(tmp_path / "run").scalars().steps.tolist() == [3, 4, 5]


def test_backward_passes_without_an_update_are_no_update(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = net()
    with steadytrain.watch(model, runs_dir=tmp_path, name="run"):
        train(model, lambda: None)
    assert "by hand" not in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the framework's own
def test_fastai_is_refused_a_bad_update(tmp_path: Path) -> None:
    pytest.importorskip("fastai")
    from fastai.optimizer import SGD

    model = net()
    optimizer = SGD(list(model.parameters()), lr=RATE)
    with pytest.raises(RunStopped), steadytrain.watch(runs_dir=tmp_path, name="run"):
        train(model, lambda: optimizer.step(), bad=BAD)
    assert all(parameter.isfinite().all() for parameter in model.parameters())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the framework's own
def test_keras_is_refused_a_bad_update(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    keras = pytest.importorskip("keras")
    import numpy as np

    x = np.ones((24, 8), "float32")
    x[13, 2] = np.nan
    model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(4), keras.layers.Dense(1)])
    model.compile(optimizer=keras.optimizers.Adam(RATE), loss="mse")
    with pytest.raises(RunStopped), steadytrain.watch(runs_dir=tmp_path, name="run"):
        model.fit(x, x[:, :1] * 0 + 1, batch_size=6, shuffle=False, verbose=0)
    assert all(np.isfinite(one).all() for one in model.get_weights())
