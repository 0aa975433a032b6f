from __future__ import annotations

from steadytrain.capture.own_time import OwnTime


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_what_is_inside_counts_once_and_a_new_step_begins_at_nothing() -> None:
    clock = Clock()
    own = OwnTime(clock)
    own.restart()
    clock.now = 1.0  # the script's
    with own:
        clock.now = 3.0
        with own:
            clock.now = 4.0
        assert own.so_far() == 3.0
    clock.now = 10.0
    assert own.so_far() == 3.0
    with own:
        clock.now = 12.0
        own.restart()  # the step ends while we are at work: what comes after belongs to the next one
        clock.now = 15.0
    clock.now = 20.0
    assert own.so_far() == 3.0


def test_an_error_of_ours_is_our_time_too() -> None:
    clock = Clock()
    own = OwnTime(clock)
    try:
        with own:
            clock.now = 2.0
            raise ValueError
    except ValueError:
        clock.now = 5.0
    assert own.so_far() == 2.0
