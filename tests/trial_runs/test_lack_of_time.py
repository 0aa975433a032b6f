"""What was not run for lack of time is named with its time."""

from __future__ import annotations

from steadytrain.experiments.specs import Entry, Outcome, Spec
from steadytrain.trial_runs import lack_of_time


def spec(trial: str, steps: int, probes: int = 0) -> Spec:
    entries = [*(Entry(step) for step in range(1, steps + 1)), *(Entry(1, "probe") for _ in range(probes))]
    return Spec(trial, 0, 0, tuple(entries))


def test_the_time_is_that_of_the_trials_that_ran() -> None:
    done = [Outcome(spec("unchanged", 10), True, seconds=20.0), Outcome(spec("clip", 10), False, "too slow")]
    said = lack_of_time.note({"drop-batch": [spec("drop-batch", 20)], "float32": [spec("float32", 10)]}, done, 1000.0)
    assert said == "Not run for lack of time: drop-batch, float32, which would take about 60 s (--budget)"


def test_without_one_that_ran_it_is_that_of_the_run() -> None:
    assert "about 15 s" in lack_of_time.note({"drop-batch": [spec("drop-batch", 30)]}, [], 0.5)


def test_a_probe_takes_a_third_of_a_step() -> None:
    assert "about 34 s" in lack_of_time.note({"drop-batch": [spec("drop-batch", 0, probes=100)]}, [], 1.0)
