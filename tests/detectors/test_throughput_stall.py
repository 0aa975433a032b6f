from __future__ import annotations

import numpy as np
import pytest

from steadytrain.detectors.throughput_stall import ThroughputStall
from steadytrain.testing import steps
from steadytrain.testing.windows import table

ROWS = 1200


def seconds(slow: slice | None = None, factor: float = 3.0) -> np.ndarray:
    values: np.ndarray = 0.2 * np.exp(0.1 * np.random.default_rng(0).standard_normal(ROWS))
    if slow is not None:
        values[slow] *= factor
    return values


CHECKPOINTS = seconds()
CHECKPOINTS[::50] += 30.0
GROWING = seconds(slice(900, None), 2.5)
TOKENS = np.concatenate([np.full(900, 4096.0), np.full(300, 10240.0)])

HEALTHY = (
    steps(step_s=seconds()),
    steps(step_s=CHECKPOINTS),
    steps(step_s=seconds(slice(900, 930))),
    steps(step_s=seconds(slice(900, None), 1.5)),
    steps(step_s=seconds(slice(900, None)) / 100.0),
    steps(step_s=GROWING, tokens=TOKENS),
    steps(step_s=seconds()[:100]),
    steps(step_s=seconds(slice(900, None), 2.2)),
    steps(step_s=seconds(slice(900, 980), 4.5) / 30.0),
)
SICK = (steps(step_s=seconds(slice(900, None))),)


def test_steps_that_take_three_times_as_long() -> None:
    waits = seconds(slice(900, None)) - 0.15
    (symptom,) = ThroughputStall().check(steps(step_s=seconds(slice(900, 1100)), data_wait_s=waits))
    assert symptom.severity == "warning"
    assert symptom.first_step == pytest.approx(901, abs=16)
    assert symptom.last_step == pytest.approx(1100, abs=16)
    assert symptom.numbers["step_s"] == pytest.approx(0.6, rel=0.1)
    assert symptom.numbers["usual_s"] == pytest.approx(0.2, rel=0.1)
    assert "waiting for data" in symptom.message


@pytest.mark.parametrize(
    ("busy", "own", "severity"), [(1.0, 0.1, "note"), (0.3, 0.1, "warning"), (1.0, 0.95, "warning")]
)
def test_other_processes_on_the_processors_make_it_a_note(busy: float, own: float, severity: str) -> None:
    at = range(1, ROWS + 1, 50)
    columns = {"cpu_busy_share": {"host": [busy] * len(at)}, "process_cpu_cores": {"host": [own] * len(at)}}
    window = steps(step_s=seconds(slice(900, 1100)), tables={"machine": table("machine", at=at, **columns)})
    (symptom,) = ThroughputStall().check(window)
    assert symptom.severity == severity
    assert ("this process did not get the processor" in symptom.message) is (severity == "note")


def test_a_wait_for_data_is_not_laid_to_others() -> None:
    """Worker processes of the loader keep the processors busy."""
    at = range(1, ROWS + 1, 50)
    columns = {"cpu_busy_share": {"host": [1.0] * len(at)}, "process_cpu_cores": {"host": [0.05] * len(at)}}
    slow = seconds(slice(900, 1100))
    waits = np.where(slow > 0.4, slow - 0.2, 0.01)
    window = steps(step_s=slow, data_wait_s=waits, tables={"machine": table("machine", at=at, **columns)})
    (symptom,) = ThroughputStall().check(window)
    assert symptom.severity == "warning"


def test_a_reading_covers_the_steps_before_it() -> None:
    """On a busy machine the steps are few between two readings: none may fall into the slow steps."""
    columns = {"cpu_busy_share": {"host": [0.7, 1.0]}, "process_cpu_cores": {"host": [0.9, 0.05]}}
    window = steps(
        step_s=seconds(slice(900, 1100), 5.0)[:1150], tables={"machine": table("machine", at=[890, 1140], **columns)}
    )
    (symptom,) = ThroughputStall().check(window)
    assert symptom.severity == "note"
    assert "it got 0.05 of a core" in symptom.message


def test_a_doubling_is_a_note_unless_it_is_data_that_is_waited_for() -> None:
    doubled = seconds(slice(900, None), 2.2)
    (of_the_machine,) = ThroughputStall().check(steps(step_s=doubled, data_wait_s=np.full(ROWS, 0.01)))
    assert of_the_machine.severity == "note"
    waits = np.where(np.arange(ROWS) < 900, 0.01, 0.2)
    (of_the_loader,) = ThroughputStall().check(steps(step_s=doubled, data_wait_s=waits))
    assert of_the_loader.severity == "warning"


def test_what_costs_a_second_or_two_is_a_note() -> None:
    (symptom,) = ThroughputStall().check(steps(step_s=seconds(slice(900, 980), 4.5) / 30.0))
    assert symptom.severity == "note"
    assert symptom.numbers["lost_s"] == pytest.approx(2.0, rel=0.3)


def test_longer_sequences_explain_it() -> None:
    (symptom,) = ThroughputStall().check(HEALTHY[5])
    assert symptom.severity == "note"
    assert "4096 to 10240 tokens" in symptom.message


def test_a_window_that_slides_along_keeps_the_name() -> None:
    values = np.tile(seconds(), 4)
    values[3000:3400] *= 3.0
    names = {
        symptom.first_step
        for end in range(3100, 3400, 16)
        for symptom in ThroughputStall().check(steps(step_s=values[end - 2048 : end], first_step=end - 2047))
    }
    assert len(names) == 1
