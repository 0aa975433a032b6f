"""The contract can fail: each part of it, for a loop that breaks just that."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import nn

import steadytrain
from steadytrain.capture.hooks.fail_open import Guard
from steadytrain.capture.step.gate import Measurement
from steadytrain.capture.step.stopping import Stopping
from steadytrain.testing import (
    Probe,
    assert_contract,
    assert_fails_open,
    assert_fault_is_caught,
    assert_hooks_gone,
    assert_invisible,
    assert_skip_is_recorded,
    by_itself,
)
from steadytrain.testing.leftovers import leftovers

STEPS = 4


def loop(probe: Probe, *, rate: float = 0.1, draws: int = 0) -> Any:
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for _ in range(STEPS):
        torch.rand(draws)
        loss = model(torch.ones(2, 4)).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss.detach()


def test_a_loop_that_keeps_it() -> None:
    recorded = assert_contract(loop, step=2, parameter="weight")
    assert recorded.streams["main"].steps.tolist() == [1, 2, 3, 4]


def test_other_weights_or_random_numbers_under_watch() -> None:
    with pytest.raises(AssertionError, match=r"under watch: SGD 0 step 1 update"):
        assert_invisible(lambda probe: loop(probe, rate=0.1 + 0.1 * probe.watched))
    with pytest.raises(AssertionError, match="under watch: SGD 0 step 0 gradients"):
        assert_invisible(lambda probe: loop(probe, draws=int(probe.watched)))
    with pytest.raises(AssertionError, match="what train returned is not the same"):
        assert_invisible(lambda probe: [loop(probe), probe.watched])


def test_nothing_to_compare() -> None:
    with pytest.raises(AssertionError, match="nothing to compare"):
        assert_invisible(lambda probe: None)
    with pytest.raises(AssertionError, match="a set cannot be compared bit for bit"):
        assert_invisible(lambda probe: {1})


def test_a_loop_that_ends_only_under_watch() -> None:
    def train(probe: Probe) -> Any:
        if probe.watched:
            raise KeyError("gone")
        return loop(probe)

    with pytest.raises(AssertionError, match="the watched run ended by KeyError"):
        assert_invisible(train)


def test_a_fault_that_is_not_planted_or_not_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AssertionError, match=r"no optimizer owns a parameter head\.weight in step 2"):
        assert_fault_is_caught(loop, step=2, parameter="head.weight")
    with pytest.raises(AssertionError, match="the watched run ended by RunStopped"):
        assert_skip_is_recorded(loop, step=2, parameter="weight")  # no scaler is there to skip it
    monkeypatch.setattr(Measurement, "is_incident", property(lambda self: False))
    with pytest.raises(AssertionError, match="the planted NaN was not seen"):
        assert_fault_is_caught(loop, step=2, parameter="weight")


def test_a_refused_step_that_reaches_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(self: Stopping, stream: Any, optimizer: Any, *args: Any, **more: Any) -> None:
        with torch.no_grad():
            stream.parameters[0].add_(1.0)
        original(self, stream, optimizer, *args, **more)

    original = Stopping.stop
    monkeypatch.setattr(Stopping, "stop", stop)
    with pytest.raises(AssertionError, match="the refused step changed weights or state of SGD"):
        assert_fault_is_caught(loop, step=2, parameter="weight")


def test_a_stop_that_the_loop_swallows_is_raised_at_the_end_of_the_watch() -> None:
    def train(probe: Probe) -> Any:
        with contextlib.suppress(SystemExit):
            return loop(probe)

    assert_fault_is_caught(train, step=2, parameter="weight")


def test_hooks_that_are_left() -> None:
    left = []

    def train(probe: Probe) -> Any:
        if probe.watched:
            left.append(steadytrain.watch(**probe.options))
        return loop(probe)

    with pytest.raises(AssertionError, match=r"left behind: .*torch.autograd._engine_run_backward"):
        assert_hooks_gone(train, attach=by_itself)
    (watch,) = left
    assert any("every optimizer" in place for place in leftovers())
    assert any("clip_grad_norm_" in place for place in leftovers())
    watch.close()
    assert leftovers() == []


def test_an_error_of_ours_that_gets_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def report(self: Guard, place: str, error: Exception) -> None:
        raise error

    monkeypatch.setattr(Guard, "report", report)
    with pytest.raises(AssertionError, match="the watched run ended by RuntimeError: an error planted"):
        assert_fails_open(loop)


def test_an_error_of_ours_that_is_told_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Guard, "_told", property(lambda self: set(), lambda self, value: None), raising=False)
    with pytest.raises(AssertionError, match="reported more than once"):
        assert_fails_open(loop)


def test_windows_need_no_torch() -> None:
    code = "import sys; from steadytrain.testing import healthy_loss, steps; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
