"""Which copies of the state are kept, and how often one is taken."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn

from steadytrain.guard import state_copies
from steadytrain.guard.state_copies import AGE_MAX, EVERY_STEPS, STRETCH, StateCopies


def taken(copies: StateCopies, steps: range, step_s: float = 0.0) -> None:
    weight = torch.zeros(3)
    for step in steps:
        if copies.is_due(step):
            copies.take(step, [], [weight], [], step_s=step_s)


def kept(copies: StateCopies) -> list[int]:
    return [copy.step for copy in copies._copies]


@pytest.mark.parametrize("last", [200, 777, 1000, 5000])
def test_before_each_step_there_is_a_copy_that_is_at_most_twice_as_old(last: int) -> None:
    copies = StateCopies()
    taken(copies, range(last + 1))
    for wanted in range(max(1, last - AGE_MAX // 2), last):
        copy = copies.before(wanted)
        assert copy is not None
        assert last - copy.step <= 2 * (last - wanted) + 2 * EVERY_STEPS
    assert len(kept(copies)) <= 24


def test_a_copy_that_was_dropped_is_not_needed_again() -> None:
    copies, before = StateCopies(), set[int]()
    for step in range(0, 3000, EVERY_STEPS):
        taken(copies, range(step, step + 1))
        now = set(kept(copies))
        assert now - before == {step}
        before = now


def test_few_copies_fit() -> None:
    copies = StateCopies(size_bytes_max=4 * torch.zeros(3).nbytes)
    taken(copies, range(2000))
    assert len(kept(copies)) == 4
    assert kept(copies)[-1] == 2000 - EVERY_STEPS


def test_after_a_roll_back_copies_go_on() -> None:
    copies = StateCopies()
    taken(copies, range(400))
    copies.forget_after(320)
    taken(copies, range(400, 800))
    assert kept(copies)[-1] == 792
    copy = copies.before(330)
    assert copy is not None
    assert copy.step <= 320


def test_one_slow_copy_does_not_stretch_the_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine: one copy seems to take a hundred seconds, the others nothing."""
    copies, times = StateCopies(), itertools.chain([0.0, 0.0] * 3, [0.0, 100.0], itertools.repeat(100.0))
    monkeypatch.setattr(state_copies.time, "perf_counter", lambda: next(times))
    steps = []
    for step in range(200):
        if copies.is_due(step):
            copies.take(step, [], [torch.zeros(3)], [], step_s=0.001)
            steps.append(step)
    gaps = {after - before for before, after in itertools.pairwise(steps)}
    assert gaps == {EVERY_STEPS}


def test_copies_that_are_always_dear_are_taken_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes as long as 4 steps: at a share of 2 % one in 200 steps. The interval grows by steps of ``STRETCH``."""
    copies, clock = StateCopies(), itertools.count(0.0, 0.4)
    monkeypatch.setattr(state_copies.time, "perf_counter", lambda: next(clock))
    steps = []
    for step in range(2000):
        if copies.is_due(step):
            copies.take(step, [], [torch.zeros(3)], [], step_s=0.1)
            steps.append(step)
    gaps = [after - before for before, after in itertools.pairwise(steps)]
    assert gaps[0] == STRETCH * EVERY_STEPS
    assert 199 <= gaps[-1] <= 201


def test_a_pinned_copy_does_not_grow_old() -> None:
    copies = StateCopies()
    taken(copies, range(400))
    copies.pin(400)
    taken(copies, range(400, 560))
    copies.forget_after(380)
    copy = copies.before(400)
    assert copy is not None
    assert copy.step == 392
    copies.unpin()
    copy = copies.before(400)
    assert copy is not None
    assert copy.step < 392


def test_a_pinned_copy_is_within_the_memory() -> None:
    copies = StateCopies(size_bytes_max=4 * torch.zeros(3).nbytes)
    taken(copies, range(200))
    copies.pin(200)
    taken(copies, range(200, 400))
    assert copies.size_bytes == 4 * torch.zeros(3).nbytes


def with_buffer(values: list[float], counts: list[int] | None = None) -> tuple[StateCopies, nn.Module]:
    """Copies of a module whose buffers have such values, one copy for each; the last value is that of now."""
    module, copies = nn.Module(), StateCopies()
    module.register_buffer("mean", torch.zeros(3))
    module.register_buffer("count", torch.zeros((), dtype=torch.long))
    for number, value in enumerate(values):
        module.mean.fill_(value)
        module.count.fill_(counts[number] if counts else 0)
        if number < len(values) - 1:
            copies.take(EVERY_STEPS * number, [module], [torch.zeros(3)], [], step_s=0.0)
    return copies, module


@pytest.mark.parametrize(
    ("values", "overwritten"),
    [
        ([1.0, 1.0, 1.0, 0.0, 0.0, 0.0], True),
        ([1.0, 1.0, 1.0, 1.0, 1.0, 1.0], False),
        ([1.0, 1.1, 1.2, 0.0, 0.0, 0.0], False),  # statistics that move with the data
        ([1.0, 1.0, 1.0, 0.9, 0.8, 0.7], False),  # a norm that trains from here on
        ([1.0, 1.0, 1.0, 0.0], False),  # no copy since, so nobody knows whether it stands still
        ([1.0, 0.0, 0.0], False),
    ],
    ids=["lost", "frozen", "moving", "thawed", "too early", "young"],
)
def test_a_buffer_that_stood_still_and_jumped_is_overwritten(values: list[float], overwritten: bool) -> None:
    copies, _module = with_buffer(values)
    assert copies.is_overwritten(2 * EVERY_STEPS + 3) == overwritten


def test_a_counter_is_not_overwritten() -> None:
    copies, _module = with_buffer([1.0] * 6, counts=[5, 5, 5, 0, 0, 0])
    assert not copies.is_overwritten(2 * EVERY_STEPS + 3)
