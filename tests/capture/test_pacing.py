"""The account behind the rests: the share after the allowance is bounded, whatever a step and its recording take."""

from __future__ import annotations

import time
from dataclasses import dataclass

import pytest

from steadytrain.capture.step.pacing import ALIGNED, REST_CALLS_S, TINY_CALLS_S, Pace, Pacing, aligned


@dataclass
class Clock:
    seconds: float = 0.0

    def __call__(self) -> float:
        return self.seconds


def simulated(pace: Pace, clock: Clock, *, step_s: float, recording_s: float, until_s: float) -> tuple[float, int]:
    """A run of such steps. Returns the share of its time that is steadytrain's, and the number of its rests."""
    pacing, step, rests, own_s = Pacing(pace), 0, 0, 0.0

    def entry() -> None:
        clock.seconds += recording_s

    recorded = pacing.timed(entry, entry)
    while clock.seconds < until_s:
        clock.seconds += step_s
        recorded()
        step, own_s = step + 1, own_s + recording_s
        rest = pacing.recorded(step)
        if not rest:
            continue
        rests, first = rests + 1, step + 1
        pacing.rest()
        calls_s = TINY_CALLS_S if pacing.tiny else REST_CALLS_S
        for _ in range(aligned(step, rest)):
            clock.seconds += step_s + calls_s
            step, own_s = step + 1, own_s + calls_s
            if pacing.rests_long:
                break
        pacing.wake(step + 1 - first)
    return own_s / clock.seconds, rests


@pytest.mark.parametrize("step_s", [0.2e-3, 0.4e-3, 1e-3, 5e-3])
@pytest.mark.parametrize("recording_s", [1e-3, 5e-3])
def test_the_share_stays_below_a_tenth(step_s: float, recording_s: float) -> None:
    clock = Clock()
    pace = Pace(allowance_s=1.0, clock=clock)
    share, rests = simulated(pace, clock, step_s=step_s, recording_s=recording_s, until_s=1000.0)
    assert 0.02 < share < 0.1
    assert rests > 5


def test_a_run_within_its_allowance_does_not_rest() -> None:
    clock = Clock()
    assert simulated(Pace(clock=clock), clock, step_s=0.4e-3, recording_s=5e-3, until_s=3.0)[1] == 0
    assert simulated(Pace(clock=clock), clock, step_s=0.4e-3, recording_s=5e-3, until_s=20.0)[1] > 0


def test_a_run_of_long_steps_does_not_rest() -> None:
    clock = Clock()
    pace = Pace(allowance_s=0.0, clock=clock)
    assert simulated(pace, clock, step_s=0.011, recording_s=5e-3, until_s=60.0)[1] == 0


def test_long_steps_that_are_costly_to_record_rest_for_longer() -> None:
    """As measured with 5,000 tensors: a step of 37 ms, recorded in 110 ms."""
    clock = Clock()
    pace = Pace(allowance_s=1.0, first_steps=128, clock=clock)
    share, rests = simulated(pace, clock, step_s=0.037, recording_s=0.11, until_s=3000.0)
    assert share < 0.1
    assert rests > 5
    clock = Clock()
    pace = Pace(allowance_s=0.0, first_steps=128, clock=clock)
    assert simulated(pace, clock, step_s=0.6, recording_s=2.0, until_s=3000.0)[1] == 0


def test_costly_steps_rest_before_a_thousand_were_recorded() -> None:
    """A step of 45 ms, recorded in 300 ms: 1,024 of them took six minutes at eight times their time."""
    clock = Clock()
    share, rests = simulated(Pace(clock=clock), clock, step_s=0.045, recording_s=0.3, until_s=900.0)
    assert rests > 2
    assert share < 0.17  # the first 128 and the allowance among them


def test_the_account_has_the_seconds_of_the_run_and_our_own() -> None:
    clock = Clock()
    pacing = Pacing(Pace(clock=clock))
    assert pacing.cost is None

    def entry() -> None:
        clock.seconds += 0.25

    recorded = pacing.timed(entry, entry)
    pacing.recorded(1)
    for step in range(2, 6):
        clock.seconds += 0.75
        recorded()
        pacing.recorded(step)
    assert pacing.cost == {"own_s": 1.0, "run_s": 4.0, "recorded_steps": 4}


def test_steps_of_a_run_that_may_not_rest_are_on_the_account() -> None:
    clock = Clock()
    pacing = Pacing(Pace(clock=clock))
    for _ in range(5):
        pacing.counted()
        clock.seconds += 1.0
    assert pacing.cost == {"own_s": 0.0, "run_s": 5.0, "recorded_steps": 4}
    assert not pacing.rests


def test_a_cheap_recording_does_not_rest() -> None:
    clock = Clock()
    pace = Pace(allowance_s=0.0, clock=clock)
    assert simulated(pace, clock, step_s=1e-3, recording_s=0.05e-3, until_s=20.0)[1] == 0


@pytest.mark.parametrize(("step", "rest"), [(95, 1), (96, 16), (97, 40)])
def test_a_burst_begins_after_a_multiple(step: int, rest: int) -> None:
    assert (step + aligned(step, rest)) % ALIGNED == 0
    assert rest <= aligned(step, rest) < rest + ALIGNED


def test_other_work_on_the_machine_makes_no_run_rest() -> None:
    wall, own = Clock(), Clock()
    pacing = Pacing(Pace(allowance_s=1.0, clock=wall, own_clock=own))

    def entry() -> None:
        wall.seconds += 0.06  # the thread waits for a core
        own.seconds += 0.002

    recorded = pacing.timed(entry, entry)
    for step in range(4096):
        wall.seconds += 0.1
        recorded()
        assert not pacing.recorded(step)
    assert pacing.cost is not None
    assert pacing.cost["own_s"] == pytest.approx(0.002 * 4096, rel=0.01)


def test_the_processor_time_is_read_unless_a_clock_is_given() -> None:
    assert Pacing(Pace()).own_clock is time.thread_time
    clock = Clock()
    assert Pacing(Pace(clock=clock)).own_clock is clock
