"""Changes that need a loop of their own to show their effect."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from changed_loops import (  # noqa: E402
    BEGIN,
    EVERY,
    STEPS,
    _plain_process,  # noqa: F401 (an autouse fixture)
    classify,
)
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from replaying import Loop, record  # noqa: E402
from steadytrain.experiments.specs import OWN_TARGETS, Change  # noqa: E402
from trying import attempt, losses, trained  # noqa: E402


def drawn() -> None:
    """No loader: targets are the script's own."""
    torch.manual_seed(0)
    net = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    rows, wanted = torch.randn(STEPS, 8, 4), torch.randn(STEPS, 8, 1)
    for x, y in zip(rows, wanted, strict=True):
        loss = functional.mse_loss(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@pytest.mark.parametrize(("loop", "own"), [(classify, False), (drawn, True)], ids=["of a loader", "its own"])
def test_targets_that_stay_while_the_inputs_are_others_are_told(loop: Loop, own: bool, tmp_path: Path) -> None:
    recording = record(loop, tmp_path / "run", every=EVERY)
    change = Change("synthetic-batch", {"steps": [BEGIN + 2]})
    outcome = attempt(loop, recording, trained(*range(BEGIN + 1, STEPS + 1)), change, begin=BEGIN)
    assert outcome.ran, outcome.why_not
    assert (OWN_TARGETS in outcome.notes) is own


def test_a_rate_is_put_back_after_each_update(tmp_path: Path) -> None:
    """A scheduler multiplies the rate that it finds: a change must not be found there."""
    rates: list[float] = []

    def loop() -> None:
        rates.clear()
        torch.manual_seed(0)
        net = nn.Linear(2, 1)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        for _ in range(STEPS):
            net(torch.randn(3, 2)).sum().backward()
            optimizer.step()
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.zero_grad()
            schedule.step()

    recording = record(loop, tmp_path / "run", every=EVERY)
    changed = attempt(loop, recording, trained(6, 7, None, None), Change("learning-rate", {"factor": 0.1}))
    assert changed.ran
    assert rates == pytest.approx([0.1 * 0.5**step for step in range(len(rates))])
    assert changed.steps[0].update_ratio is not None


@pytest.mark.long
def test_eager_code_runs_in_place_of_compiled(tmp_path: Path) -> None:
    runs = []

    def loop() -> None:
        torch.manual_seed(0)
        net = nn.Linear(2, 1)

        def count(graph: Any, inputs: Any) -> Any:
            def run(*args: Any) -> Any:
                runs.append(1)
                return graph(*args)

            return run

        compiled = torch.compile(net, backend=count)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(STEPS):
            compiled(torch.randn(3, 2)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

    recording = record(loop, tmp_path / "run", every=EVERY)
    control = attempt(loop, recording, trained(6, 7, 8, 9))
    assert control.exact is True
    whole = len(runs)
    eager = attempt(loop, recording, trained(6, 7, 8, 9), Change("eager"))
    assert eager.ran, eager.why_not
    assert losses(eager) == losses(control)
    assert len(runs) - whole < whole - STEPS  # none of the four was compiled code


def test_loaders_without_workers_and_other_seeds_come_before_the_script(tmp_path: Path) -> None:
    workers = []

    def loop() -> None:
        torch.manual_seed(0)
        net = nn.Linear(2, 1)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        loader = DataLoader(TensorDataset(torch.randn(STEPS * 3, 2)), 3, num_workers=1)
        workers.append(loader.num_workers)
        for (rows,) in loader:
            net(rows).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()

    recording = record(loop, tmp_path / "run", every=EVERY)
    own = attempt(loop, recording, trained(None, None, None), begin=None)
    one = attempt(loop, recording, trained(None, None, None), Change("one-worker"), begin=None)
    assert losses(one) == losses(own)
    assert workers == [1, 1, 0]
    other = attempt(loop, recording, trained(None, None, None), Change("seed-everything", {"seed": 5}), begin=None)
    assert losses(other) != losses(own)
    safe = attempt(loop, recording, trained(None, None, None), Change("deterministic"), begin=None)
    assert losses(safe) == losses(own)
