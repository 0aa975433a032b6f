"""Models that are in evaluation mode from the first step on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

from steadytrain.capture.looks import followed
from watching import watching

STEPS = 40


def with_norm() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))


def with_dropout() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.1), nn.Linear(8, 1))


def trained_before() -> nn.Sequential:
    model = with_norm()
    with torch.no_grad():
        model(1.0 + torch.randn(32, 4))
    return model


def frozen_norm() -> nn.Sequential:
    model = with_norm()
    model[1].requires_grad_(False)
    return model


def dropout_in_a_frozen_part() -> nn.Sequential:
    return nn.Sequential(with_dropout().requires_grad_(False), nn.Linear(1, 1))


def no_dropout() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.0), nn.Linear(8, 1))


def with_spectral_norm() -> nn.Sequential:
    return nn.Sequential(spectral_norm(nn.Linear(4, 8)), nn.ReLU(), nn.Linear(8, 1))


def with_neither() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))


def with_older_spectral_norm() -> nn.Sequential:
    return nn.Sequential(nn.utils.spectral_norm(nn.Linear(4, 8)), nn.ReLU(), nn.Linear(8, 1))


def found(folder: Path, made: Callable[[], nn.Module], *, switched_at: int = 0) -> list[str]:
    torch.manual_seed(0)
    with watching(folder / "run", "observe") as watcher:
        model = made().eval()
        optimizer = torch.optim.SGD([one for one in model.parameters() if one.requires_grad], lr=0.01)
        for step in range(1, STEPS + 1):
            if step == switched_at:
                model.train()
            optimizer.zero_grad()
            model(torch.randn(16, 4)).square().mean().backward()
            optimizer.step()
    return [one.severity for one in watcher.symptoms if one.name == "left-in-evaluation"]


@pytest.fixture
def without_train(monkeypatch: pytest.MonkeyPatch) -> None:
    """The source of this test holds ``train()``."""
    monkeypatch.setattr(followed, "TURNS_ON", "(?!)")


@pytest.mark.usefixtures("without_train")
@pytest.mark.parametrize(("made", "severity"), [(with_norm, "warning"), (with_dropout, "note")])
def test_what_is_off(tmp_path: Path, made: Callable[[], nn.Module], severity: str) -> None:
    assert found(tmp_path, made) == [severity]


@pytest.mark.usefixtures("without_train")
@pytest.mark.parametrize("made", [trained_before, frozen_norm, dropout_in_a_frozen_part, no_dropout])
def test_evaluation_mode_that_may_be_meant(tmp_path: Path, made: Callable[[], nn.Module]) -> None:
    assert found(tmp_path, made) == []


def test_a_script_that_calls_train(tmp_path: Path) -> None:
    assert found(tmp_path, with_dropout) == []


@pytest.mark.usefixtures("without_train")
def test_training_mode_from_some_step_on(tmp_path: Path) -> None:
    assert found(tmp_path, with_norm, switched_at=20) == []


@pytest.mark.usefixtures("without_train")
def test_a_judge_in_evaluation_mode_behind_the_model(tmp_path: Path) -> None:
    torch.manual_seed(0)
    with watching(tmp_path / "run", "observe") as watcher:
        model, judge = nn.Linear(4, 4), with_dropout().eval()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(STEPS):
            optimizer.zero_grad()
            judge(model(torch.randn(16, 4))).square().mean().backward()
            optimizer.step()
    assert "left-in-evaluation" not in {one.name for one in watcher.symptoms}


@pytest.mark.parametrize("made", [with_spectral_norm, with_older_spectral_norm, with_neither])
@pytest.mark.parametrize("back", [False, True])
def test_a_spectral_norm_that_is_left_in_evaluation_mode(
    tmp_path: Path, made: Callable[[], nn.Module], back: bool
) -> None:
    torch.manual_seed(0)
    with watching(tmp_path / "run", "observe") as watcher:
        model = made()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for step in range(1, STEPS + 1):
            if step == 9:
                model.eval()
            if step == 11 and back:
                model.train()
            optimizer.zero_grad()
            model(torch.randn(16, 4)).square().mean().backward()
            optimizer.step()
    told = [one for one in watcher.symptoms if one.name == "left-in-evaluation"]
    assert len(told) == (made is not with_neither and not back)
    for one in told:
        assert one.first_step == 9
        assert "spectral norm no longer runs the power iteration" in one.message
