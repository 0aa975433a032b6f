from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from steadytrain.core.model import Window
from steadytrain.detectors.spent_schedule import SpentSchedule
from steadytrain.testing import newest, steps
from steadytrain.testing.windows import table


def rates(values: Sequence[float], *, first: int = 1) -> Window:
    return steps(learning_rate=list(values), first_step=first)


def exponential(gamma: float, count: int) -> list[float]:
    return (1e-3 * gamma ** np.arange(count)).tolist()


COSINE = (5e-4 * (1.0 + np.cos(np.linspace(0.0, np.pi, 200, endpoint=False)))).tolist()
LINEAR = np.linspace(1e-3, 0.0, 200).tolist()
WARM_UP = np.linspace(1e-9, 1e-3, 100).tolist()
EACH_BATCH = rates(exponential(0.9, 140))
WHOLE_RUN = rates(exponential(1e-5 ** (1 / 300), 300))
STAIRS = rates([1e-1 * 0.1 ** (at // 10) for at in range(90)])
QUIET = (
    rates([1e-3] * 100),
    rates(COSINE),
    rates(LINEAR),
    rates(COSINE * 3),  # restarts
    rates(COSINE + [1e-6] * 200),  # a floor of a thousandth
    rates([1e-3] * 160 + LINEAR[::5]),  # stable, then a decay
    rates(WARM_UP),
    rates(WARM_UP + (1e-3 * (100.0 / np.arange(100, 2000)) ** 0.5).tolist()),
    rates(exponential(1e-4 ** (1 / 300), 300)),  # a decay over the whole run
    rates([1e-1] * 50 + [1e-5] * 60),  # a new phase
    rates([0.1] * 100 + [0.01] * 60 + [0.001] * 40 + [0.00009] * 60),  # a plateau reduced it late
    rates(exponential(0.9, 80)),  # not long yet
    rates([1e-3] * 4 + [1e-4] * 4 + [1e-8] * 200, first=5000),  # its start is not in view
    rates(exponential(0.8, 40) + [0.0] * 60),  # zero-learning-rate
    steps(),
)
GAMMA = {"script": table("script", at=[17], value={"gamma-an-update:ExponentialLR": [0.97]})}
BY_GAMMA = steps(learning_rate=exponential(0.97, 230), tables=GAMMA)
HEALTHY = (*QUIET, WHOLE_RUN, steps(learning_rate=exponential(0.97, 200), tables=GAMMA), rates(exponential(0.97, 230)))
SICK = (EACH_BATCH, STAIRS, rates(WARM_UP[::10] + exponential(0.8, 90)), BY_GAMMA)


def test_quiet() -> None:
    assert [SpentSchedule().check(window) for window in QUIET] == [()] * len(QUIET)


def test_a_decay_of_each_batch() -> None:
    symptom = newest(SpentSchedule(), EACH_BATCH)
    assert symptom is not None
    assert (symptom.severity, symptom.first_step, symptom.last_step) == ("warning", 67, 140)
    assert symptom.message == (
        "the learning rate decayed from 0.001 below a thousandth of it by step 67, and training went on for 73 steps, "
        "down to 4.4e-10"
    )


def test_stairs() -> None:
    symptom = newest(SpentSchedule(), STAIRS)
    assert symptom is not None
    assert symptom.first_step == 41


def test_a_factor_of_a_pass_in_each_update() -> None:
    symptom = newest(SpentSchedule(), BY_GAMMA)
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("warning", 153)
    assert symptom.message == (
        "the learning rate decayed from 0.001 below a hundredth of it by step 153, by ExponentialLR with a factor of "
        "0.97 at every step, and training went on for 77 steps, down to 9.3e-07"
    )
    assert [SpentSchedule().check(window) for window in HEALTHY[-2:]] == [(), ()]


def test_a_decay_that_may_be_planned_over_the_whole_run_is_a_note() -> None:
    symptom = newest(SpentSchedule(), WHOLE_RUN)
    assert symptom is not None
    assert symptom.severity == "note"
