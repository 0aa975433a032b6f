from __future__ import annotations

import numpy as np
import pytest

from steadytrain.core.model import FloatArray, Window
from steadytrain.detectors.update_norm_spike import UpdateNormSpike
from steadytrain.testing import newest, steps
from steadytrain.testing.windows import table

COUNT = 1000
NOISE = np.random.default_rng(0).standard_normal((2, COUNT))
LOSS = 2.0 + 0.04 * NOISE[0]
RATE = np.full(COUNT, 1e-3)
USUAL = 1e-3 * np.exp(0.1 * NOISE[1])


def window(
    updates: FloatArray, *, loss: FloatArray = LOSS, rate: FloatArray = RATE, every: int = 1, weight: float = 1.0
) -> Window:
    at = np.arange(every, COUNT + 1, every)
    both = {"a": updates[at - 1].tolist(), "b": (100.0 * USUAL * rate)[at - 1].tolist()}
    held = table("tensors", at=at.tolist(), update_norm=both, weight_norm=dict.fromkeys(both, [weight] * len(at)))
    return steps(loss=loss, learning_rate=rate, tables={"tensors": held})


def spike(times: float, step: int = 600) -> FloatArray:
    updates: FloatArray = USUAL.copy()
    updates[step - 1] *= times
    return updates


def jump(step: int) -> FloatArray:
    loss: FloatArray = LOSS.copy()
    loss[step - 1] += 2.0
    return loss


WARM_UP = np.minimum(1.0, np.arange(1, COUNT + 1) / 300) * 1e-3
RESTARTS = 1e-3 * (0.01 + 0.5 * (1 + np.cos(np.pi * (np.arange(COUNT) % 250) / 250)))
HEAVY = 1e-3 * np.exp(0.7 * NOISE[1])

TO_ZERO = 1e-3 * np.linspace(1.0, 1e-4, COUNT) ** 2

HEALTHY = (
    window(USUAL),
    window(USUAL, every=50),
    window(USUAL * WARM_UP / 1e-3, rate=WARM_UP),
    window(USUAL * RESTARTS / 1e-3, rate=RESTARTS, every=10),
    window(HEAVY),  # SGD on small batches
    window(spike(5.0)),  # nothing came of it
    window(USUAL, weight=0.05),  # a fiftieth of the weights: a small model early on
    window(spike(100.0, step=3)),
    window(USUAL, rate=TO_ZERO, every=20),  # another group keeps its rate while the first one's goes to zero
)
LEARNS = np.linspace(5.3, 4.4, COUNT) + 0.04 * NOISE[0]


def test_large_updates_that_learn_are_a_note() -> None:
    """A language model that is trained by SGD at a rate of 30."""
    found = newest(UpdateNormSpike(), window(200.0 * USUAL, every=50, loss=LEARNS))
    assert found is not None
    assert found.severity == "note"


def test_a_new_optimizer_where_the_schedule_starts_again_is_a_note() -> None:
    at = 501  # the third cycle; Adam's first steps are its largest
    found = UpdateNormSpike().check(window(spike(5.0, at) * RESTARTS / 1e-3, rate=RESTARTS, loss=jump(at + 1)))
    assert [(one.severity, one.first_step) for one in found] == [("note", at)]
    assert found[0].message.endswith("; the learning rate rose from 1e-05 to 0.00101")
    mid_cycle = window(spike(5.0, 440) * RESTARTS / 1e-3, rate=RESTARTS, loss=jump(441))
    assert [one.severity for one in UpdateNormSpike().check(mid_cycle)] == ["warning"]


SICK = (
    window(spike(5.0), loss=jump(602)),
    window(spike(40.0)),
    window(spike(40.0), every=50),
    window(200.0 * USUAL, every=50),
)


def test_quiet() -> None:
    assert [UpdateNormSpike().check(sight) for sight in (*HEALTHY[:5], *HEALTHY[7:])] == [()] * 7


@pytest.mark.parametrize(
    ("times", "loss", "severity"), [(5.0, LOSS, "note"), (5.0, jump(602), "warning"), (40.0, LOSS, "warning")]
)
def test_a_spike(times: float, loss: FloatArray, severity: str) -> None:
    symptom = newest(UpdateNormSpike(), window(spike(times), loss=loss))
    assert symptom is not None
    assert (symptom.severity, symptom.first_step, symptom.last_step) == (severity, 600, 600)
    assert symptom.tensors == ("a",)
    assert symptom.numbers["ratio"] == pytest.approx(times, rel=0.3)


def test_updates_of_a_tenth_of_the_weights_that_last() -> None:
    symptom = newest(UpdateNormSpike(), window(200.0 * USUAL, every=50))
    assert symptom is not None
    assert (symptom.severity, symptom.first_step, symptom.last_step) == ("warning", 50, 1000)


def test_a_fiftieth_is_a_note() -> None:
    symptom = newest(UpdateNormSpike(), HEALTHY[6])
    assert symptom is not None
    assert symptom.severity == "note"


def test_two_spikes_are_two_symptoms() -> None:
    updates = spike(40.0)
    updates[799] *= 30.0
    assert [symptom.first_step for symptom in UpdateNormSpike().check(window(updates))] == [600, 800]


def test_the_span_is_that_of_the_steps_beyond_the_bound() -> None:
    updates = np.where(np.arange(1, COUNT + 1) <= 500, 30.0, 300.0) * 1e-3
    symptom = newest(UpdateNormSpike(), window(updates, every=10))
    assert symptom is not None
    assert symptom.severity == "warning"
    assert (symptom.first_step, symptom.last_step) == (520, 1000)  # readings 16 steps apart or more
    assert symptom.message.endswith("from step 520 to 1000")


def test_the_first_update_of_all_is_no_spike() -> None:
    """Nothing was seen to learn from before, as before a first reward."""
    late = np.where(np.arange(COUNT) < 600, 0.0, USUAL)
    held = table("tensors", at=range(1, COUNT + 1), update_norm={"a": late.tolist()}, weight_norm={"a": [1.0] * COUNT})
    assert newest(UpdateNormSpike(), steps(loss=LOSS, learning_rate=RATE, tables={"tensors": held})) is None
