"""Losses that rise after evaluations, and evaluations that leave no trace."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from steadytrain.core.model import FloatArray, Window
from steadytrain.detectors.evaluation_setback import EvaluationSetback
from steadytrain.testing import newest, steps
from steadytrain.testing.windows import table
from watching import watching

COUNT, EVERY = 240, 24
EVALUATED = tuple(range(EVERY + 1, COUNT, EVERY))
NAN = float("nan")


def evaluated(
    loss: FloatArray, *, at: Sequence[int] = EVALUATED, place: str = "within", **signals: FloatArray
) -> Window:
    looked = table("script", at=list(at), value={f"evaluated:{place}": [3.0] * len(at)})
    return steps(loss=loss, tables={"script": looked}, **signals)


def course(height: float, *, at: Sequence[int] = EVALUATED, noise: float = 0.05) -> FloatArray:
    """A loss that falls, and stands higher by ``height`` for some steps from each of ``at`` on."""
    number = np.arange(1, COUNT + 1)
    loss = 1.0 + np.exp(-number / 80.0) + noise * np.random.default_rng(0).standard_normal(COUNT)
    for step in at:
        since = number - step
        loss += np.where(since >= 0, height * np.exp(-np.maximum(since, 0) / 3.0), 0.0)
    return loss


RATES = np.where(np.isin(np.arange(1, COUNT + 1), EVALUATED), 2e-3, 1e-3)
SICK = (evaluated(course(0.3)), evaluated(course(0.3), place="between"))
HEALTHY = (
    steps(loss=course(0.3)),
    evaluated(course(0.0)),
    evaluated(course(-0.3)),
    evaluated(course(0.3, at=EVALUATED[:2])),  # after two of them
    evaluated(course(0.3, at=[step + 9 for step in EVALUATED])),  # at other places
    evaluated(course(0.3)[:100], at=EVALUATED[:3]),  # too few so far
    evaluated(course(0.02)),  # hardly
    evaluated(course(0.3), learning_rate=RATES),  # restarts of the rate
)


def test_quiet() -> None:
    assert [EvaluationSetback().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


@pytest.mark.parametrize(("window", "is_between"), list(zip(SICK, (False, True), strict=True)))
def test_a_loss_that_rises_after_each_evaluation(window: Window, *, is_between: bool) -> None:
    symptom = newest(EvaluationSetback(), window)
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("note", EVERY + 1)
    assert symptom.message.startswith("the loss rises after 9 of 9 evaluations")
    assert ("between two passes" in symptom.message) is is_between


@pytest.mark.parametrize("seed", range(40))
def test_noise_alone_is_quiet(seed: int) -> None:
    loss = 1.0 + 0.3 * np.random.default_rng(seed).standard_normal(COUNT) ** 2
    assert EvaluationSetback().check(evaluated(loss)) == ()


class Merged(nn.Module):
    """A frozen layer with a trained one beside it, which an evaluation adds to the frozen one."""

    def __init__(self) -> None:
        super().__init__()
        self.base, self.added = nn.Linear(8, 1), nn.Linear(8, 1, bias=False)
        self.base.requires_grad_(requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + (0.0 if not self.training else self.added(x))


@pytest.mark.parametrize(("taken_out", "expected"), [(False, ["evaluation-setback"]), (True, [])])
def test_a_real_loop(taken_out: bool, expected: list[str], tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, truth = Merged(), torch.randn(8, 1)
    optimizer = torch.optim.SGD(model.added.parameters(), lr=0.03)
    with watching(tmp_path / "run", "observe") as watcher:
        for step in range(200):
            x = torch.randn(32, 8)
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), x @ truth).backward()
            optimizer.step()
            if step % 20 == 19:
                model.eval()
                with torch.no_grad():
                    model.base.weight += model.added.weight
                    model(x)
                    if taken_out:
                        model.base.weight -= model.added.weight
                model.train()
    assert [one.name for one in watcher.symptoms if one.name == "evaluation-setback"] == expected
