"""Loops left in evaluation mode without a module that tells it, and optimizers whose parameters get no gradient."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the name that everybody uses
from looked_loops import STEPS, Step, adam, batch, found, update
from torch import Tensor, nn

from steadytrain.core.model import Severity
from watching import watching


class ByFunction(nn.Module):
    """Dropout by function: no module says that the mode matters. ``share`` 0 draws nothing."""

    def __init__(self, share: float = 0.5) -> None:
        super().__init__()
        self.first, self.last, self.share = nn.Linear(8, 16), nn.Linear(16, 3), share

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x).relu()
        if self.share:
            hidden = F.dropout(hidden, self.share, training=self.training)
        out: Tensor = self.last(hidden)
        return out


class Noisy(ByFunction):
    """Draws in both modes."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x + 0.1 * torch.randn_like(x))


def in_evaluation_after(steps: int, make: Callable[[], nn.Module]) -> Callable[[], Step]:
    def begin() -> Step:
        model = make()
        optimizer = adam(model)

        def step(at: int) -> None:
            update(optimizer, F.cross_entropy(model(batch()[0]), batch()[1]))
            if at == steps:
                model.eval()

        return step

    return begin


class Sleepy(nn.Module):
    """Its weights are made, and drawn, in the first call."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LazyLinear(3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x)
        return out


def lazy() -> Step:
    model = Sleepy()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(at: int) -> None:
        update(optimizer, F.cross_entropy(model(batch()[0]), batch()[1]))
        model.eval()

    return step


def evaluated_between() -> Step:
    model = ByFunction()
    optimizer = adam(model)

    def step(at: int) -> None:
        model.train()
        update(optimizer, F.cross_entropy(model(batch()[0]), batch()[1]))
        model.eval()
        with torch.no_grad():
            model(batch()[0])

    return step


@pytest.mark.parametrize("steps", [1, 4])
def test_functional_dropout_left_off(steps: int, tmp_path: Path) -> None:
    assert found(tmp_path / "run", in_evaluation_after(steps, ByFunction)) == {"left-in-evaluation": "warning"}


@pytest.mark.parametrize(
    "begin",
    [in_evaluation_after(4, lambda: ByFunction(0.0)), in_evaluation_after(4, Noisy), lazy, evaluated_between],
)
def test_the_mode_changes_nothing(begin: Callable[[], Step], tmp_path: Path) -> None:
    assert found(tmp_path / "run", begin, steps=2 * STEPS) == {}


def test_what_was_drawn_is_said(tmp_path: Path) -> None:
    with watching(tmp_path / "run", "observe") as watcher:
        step = in_evaluation_after(1, ByFunction)()
        for at in range(1, STEPS + 1):
            step(at)
    (symptom,) = [one for one in watcher.symptoms if one.name == "left-in-evaluation"]
    assert symptom.message == (
        "ByFunction trains in evaluation mode from step 2 on: its forward drew random numbers in training mode and "
        "draws none now, so dropout is off"
    )


def play(*, cut: bool, turns: int = 1, wait: int = 0) -> Callable[[], Step]:
    """A maker and a judge; the maker's turn comes every ``turns`` steps, and its first ``wait`` turns are cut off."""

    def begin() -> Step:
        maker, judge = nn.Linear(4, 8), nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
        of_maker, of_judge = adam(maker), adam(judge)

        def step(at: int) -> None:
            made = maker(torch.randn(24, 4))
            said = judge(torch.cat([batch()[0], made.detach()]))
            update(of_judge, F.binary_cross_entropy_with_logits(said, torch.arange(48)[:, None].lt(24).float()))
            if at % turns == 0:
                judged = made.detach() if cut or at <= wait else made
                update(of_maker, -judge(judged).mean())

        return step

    return begin


def cleared_before_the_step() -> Step:
    model = ByFunction(0.0)
    optimizer = adam(model)

    def step(at: int) -> None:
        F.cross_entropy(model(batch()[0]), batch()[1]).backward()
        optimizer.zero_grad()
        optimizer.step()

    return step


def frozen_turn() -> Step:
    """The maker is frozen all along, and its optimizer is stepped after the judge's backward."""
    maker, judge = nn.Linear(4, 8).requires_grad_(False), nn.Linear(8, 1)
    of_maker, of_judge = adam(maker), adam(judge)

    def step(at: int) -> None:
        update(of_judge, judge(batch()[0]).square().mean())
        update(of_maker, judge(maker(torch.randn(24, 4))).square().mean())

    return step


def moved_by_hand() -> Step:
    """The step of the maker's optimizer does nothing: the script moves the weights itself."""
    maker, judge = nn.Linear(4, 8), nn.Linear(8, 1)
    of_maker, of_judge = torch.optim.SGD(maker.parameters(), lr=0.1), adam(judge)

    def step(at: int) -> None:
        update(of_judge, judge(batch()[0]).square().mean())
        update(of_maker, judge(maker(torch.randn(24, 4)).detach()).square().mean())
        with torch.no_grad():
            for one in maker.parameters():
                one.mul_(0.99)

    return step


def moved_through_data() -> Step:
    """The same where only the norm of the weights, which is measured now and then, shows it."""
    maker, judge = nn.Linear(4, 8), nn.Linear(8, 1)
    of_maker, of_judge = torch.optim.SGD(maker.parameters(), lr=0.1), adam(judge)

    def step(at: int) -> None:
        update(of_judge, judge(batch()[0]).square().mean())
        update(of_maker, judge(maker(torch.randn(24, 4)).detach()).square().mean())
        for one in maker.parameters():
            one.data.mul_(0.99)

    return step


def rates_drawn_first() -> Step:
    """A schedule is run through without a backward, as for a plot, before another optimizer trains."""
    model = ByFunction(0.0)
    shown = adam(nn.Linear(2, 2))
    schedule = torch.optim.lr_scheduler.StepLR(shown, 8)
    for _ in range(40):
        shown.step()
        schedule.step()
    optimizer = adam(model)
    return lambda at: update(optimizer, F.cross_entropy(model(batch()[0]), batch()[1]))


def test_a_maker_that_is_cut_off(tmp_path: Path) -> None:
    with watching(tmp_path / "run", "observe") as watcher:
        step = play(cut=True, turns=2)()
        for at in range(1, 4 * STEPS + 1):
            step(at)
    (symptom,) = [one for one in watcher.symptoms if one.name == "optimizer-without-gradients"]
    assert symptom.severity == "warning"
    assert symptom.message.startswith("Adam of Linear at looked_loops.py:")
    assert symptom.message.endswith("steps, and none of its 2 parameters ever had a gradient: it updates nothing")


@pytest.mark.parametrize(
    ("begin", "steps", "severity"),
    [(play(cut=True), 6, "note"), (play(cut=True), 20, "warning"), (cleared_before_the_step, 20, "warning")],
)
def test_no_gradient_at_all(begin: Callable[[], Step], steps: int, severity: Severity, tmp_path: Path) -> None:
    assert found(tmp_path / "run", begin, steps=steps)["optimizer-without-gradients"] == severity


@pytest.mark.parametrize(
    "begin", [play(cut=False), play(cut=False, turns=5), play(cut=False, wait=3), frozen_turn, moved_by_hand]
)
def test_its_turn_comes(begin: Callable[[], Step], tmp_path: Path) -> None:
    assert "optimizer-without-gradients" not in found(tmp_path / "run", begin, steps=4 * STEPS)


def test_weights_that_move_are_no_warning(tmp_path: Path) -> None:
    assert found(tmp_path / "run", moved_through_data, steps=4 * STEPS) == {"optimizer-without-gradients": "note"}


def test_a_schedule_is_shown(tmp_path: Path) -> None:
    assert found(tmp_path / "run", rates_drawn_first, steps=2 * STEPS) == {}
