"""Seconds inside data loaders, with a clock that the test sets."""

from __future__ import annotations

from steadytrain.capture.step.data_wait import OPEN_MAX, DataWait


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def wait() -> tuple[DataWait, Clock]:
    clock = Clock()
    return DataWait(clock), clock


def fetch(data: DataWait, clock: Clock, loader: object, seconds: float) -> None:
    data.begins(loader)
    clock.now += seconds
    data.ends(loader)


def test_a_step_without_a_loader_waits_for_nothing() -> None:
    data, clock = wait()
    clock.now += 5.0
    assert data.take() == 0.0


def test_every_fetch_of_a_step_counts_and_each_once() -> None:
    data, clock = wait()
    train, other = object(), object()
    for seconds in (1.0, 2.0):
        fetch(data, clock, train, seconds)
        clock.now += 10.0
    fetch(data, clock, other, 4.0)
    assert data.take() == 7.0
    assert data.take() == 0.0


def test_a_loader_that_reads_from_another_one_is_counted_once() -> None:
    data, clock = wait()
    outer, inner = object(), object()
    data.begins(outer)
    clock.now += 1.0
    fetch(data, clock, inner, 2.0)
    fetch(data, clock, inner, 2.0)
    clock.now += 1.0
    data.ends(outer)
    assert data.take() == 6.0


def test_a_fetch_that_ended_its_loader_hides_nothing_that_follows() -> None:
    data, clock = wait()
    ended, evaluation, again = object(), object(), object()
    data.begins(ended)  # raises StopIteration
    clock.now += 100.0
    fetch(data, clock, evaluation, 3.0)
    data.begins(evaluation)  # raises StopIteration
    clock.now += 100.0
    fetch(data, clock, again, 2.0)
    fetch(data, clock, ended, 1.0)  # workers that persist begin again with the same iterator
    assert data.take() == 6.0
    fetch(data, clock, again, 0.5)
    assert data.take() == 0.5


def test_an_end_without_a_beginning_is_nothing() -> None:
    data, _ = wait()
    data.ends(object())
    assert data.take() == 0.0


def test_loaders_that_all_ended_do_not_pile_up() -> None:
    data, clock = wait()
    loaders = [object() for _ in range(3 * OPEN_MAX)]
    for loader in loaders:
        data.begins(loader)
        clock.now += 10.0
    fetch(data, clock, object(), 1.0)
    assert len(data._open) < OPEN_MAX
    assert data.take() == 1.0
