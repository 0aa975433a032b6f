"""Modules beside the model that run with their dropout on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from watching import watching

STEPS = 100


def network(p: float = 0.3) -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(p), nn.Linear(16, 4))


def in_evaluation() -> nn.Module:
    return network().eval()


def without_dropout() -> nn.Module:
    return network(0.0)


def dropout_in_evaluation() -> nn.Module:
    teacher = network()
    teacher[2].eval()
    return teacher


def taught(
    folder: Path,
    made: Callable[[], nn.Module],
    *,
    frozen: bool = False,
    follows: bool = False,
    every: int = 1,
    masks: int = 1,
) -> tuple[str, ...]:
    """The messages of a training with targets of a teacher that is ``made`` under watch, in each ``every``-th step."""
    torch.manual_seed(0)
    with watching(folder / "run", "observe") as watcher:
        student, teacher = network(0.0), made()
        optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
        teacher.requires_grad_(not frozen)
        for step in range(STEPS):
            x = torch.randn(8, 6)
            target: Tensor = torch.zeros(8, 4)
            if step % every == 0:
                with torch.set_grad_enabled(frozen):
                    target = torch.stack([teacher(x) for _ in range(masks)]).mean(0)
            loss = functional.mse_loss(student(x), target.detach())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if follows:
                with torch.no_grad():
                    for mine, theirs in zip(teacher.parameters(), student.parameters(), strict=True):
                        mine.lerp_(theirs, 0.01)
    return tuple(one.message for one in watcher.symptoms if one.name == "noisy-teacher")


@pytest.mark.parametrize("frozen", [False, True], ids=["without gradients", "frozen"])
def test_dropout_of_a_teacher(tmp_path: Path, frozen: bool) -> None:
    (message,) = taught(tmp_path, network, frozen=frozen)
    assert message.startswith("Sequential runs without gradients in training mode")


@pytest.mark.parametrize("made", [in_evaluation, without_dropout, dropout_in_evaluation])
def test_teachers_without_noise(tmp_path: Path, made: Callable[[], nn.Module]) -> None:
    assert taught(tmp_path, made) == ()


def test_a_teacher_that_follows(tmp_path: Path) -> None:
    assert taught(tmp_path, network, follows=True) == ()


def test_a_mean_over_several_masks(tmp_path: Path) -> None:
    assert taught(tmp_path, network, masks=4) == ()


def test_a_module_that_runs_now_and_then(tmp_path: Path) -> None:
    assert taught(tmp_path, network, every=2) == ()


class Distilled(nn.Module):
    """A student that holds its teacher."""

    def __init__(self, *, gradients: bool = False) -> None:
        super().__init__()
        self.student, self.teacher, self.gradients = network(0.0), network().requires_grad_(False), gradients

    def forward(self, x: Tensor) -> Tensor:
        with torch.set_grad_enabled(self.gradients):
            wanted = self.teacher(x)
        return functional.mse_loss(self.student(x), wanted)


@pytest.mark.parametrize(("gradients", "found"), [(False, ["note"]), (True, [])], ids=["without gradients", "with"])
def test_a_part_of_the_model(tmp_path: Path, gradients: bool, found: list[str]) -> None:
    torch.manual_seed(0)
    with watching(tmp_path / "run", "observe") as watcher:
        model = Distilled(gradients=gradients)
        optimizer = torch.optim.SGD(model.student.parameters(), lr=0.1)
        for _ in range(STEPS):
            optimizer.zero_grad()
            model(torch.randn(8, 6)).backward()
            optimizer.step()
    assert [one.severity for one in watcher.symptoms if one.name == "noisy-teacher"] == found
