"""Digests for the other ranks: when they are due, and that one slow moment does not end them."""

from __future__ import annotations

import pytest
import torch

from steadytrain.capture.looks import replica_digests
from steadytrain.capture.looks.replica_digests import COLUMNS, INTERVAL_MAX, INTERVAL_MIN, ReplicaDigests, probe


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(replica_digests, "time", made)
    return made


def paced(digests: ReplicaDigests, clock: Clock, *, steps: int, step_s: float, digest_s: float) -> list[int]:
    """The steps of the next ``steps`` in which digests were due and took ``digest_s``."""
    due = []
    first = digests._last[0] + 1 if digests._last else 1
    for step in range(first, first + steps):
        clock.now += step_s
        if digests.is_due(step):
            began = clock.now
            clock.now += digest_s
            digests._pace(step, began)
            due.append(step)
    return due


def test_they_are_due_at_first_and_then_every_so_often(clock: Clock) -> None:
    assert paced(ReplicaDigests(), clock, steps=64, step_s=1.0, digest_s=1e-3) == [1, 2, 4, 8, 16, 32, 48, 64]


def test_slow_ones_become_rare(clock: Clock) -> None:
    digests = ReplicaDigests()
    paced(digests, clock, steps=200, step_s=0.01, digest_s=0.01)
    assert INTERVAL_MIN < digests._interval < INTERVAL_MAX


def test_a_moment_in_which_the_process_waited_is_forgotten(clock: Clock) -> None:
    digests = ReplicaDigests()
    paced(digests, clock, steps=2, step_s=0.01, digest_s=0.5)
    paced(digests, clock, steps=2000, step_s=1.0, digest_s=1e-4)
    assert digests._interval == INTERVAL_MIN


def test_the_probe_is_the_smallest_parameter() -> None:
    large, small = torch.nn.Parameter(torch.ones(9000)), torch.nn.Parameter(torch.ones(3))
    reading = probe([large, small])
    assert reading is not None
    assert reading.values.shape == (1, len(COLUMNS))
    with torch.no_grad():
        small[1] += 1e-6
    changed = probe([large, small])
    assert changed is not None
    assert (changed.values != reading.values).any()
    assert probe([large]) is None


def test_the_steps_that_an_optimizers_state_counts() -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.Adam([weight])
    assert replica_digests._step_counts([optimizer]) == ""
    weight.grad = torch.ones(2)
    optimizer.step()
    first = replica_digests._step_counts([optimizer])
    optimizer.step()
    assert first
    assert replica_digests._step_counts([optimizer]) not in ("", first)
