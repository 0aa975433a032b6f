"""Rows become runs: resumes, restarts, several runs, epochs, evaluations between, no steps. Nothing goes silently."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from steadytrain.core.errors import UsageError
from steadytrain.logs import log_rows as rows_module
from steadytrain.logs.log_rows import RowsBuilder
from steadytrain.logs.log_runs import logs_of
from steadytrain.logs.reader import Columns, Log


def logs(rows: Sequence[dict[str, float]], *, runs: Sequence[str] | None = None, **columns: str) -> tuple[Log, ...]:
    builder = RowsBuilder()
    for number, row in enumerate(rows):
        builder.add(row, run=runs[number] if runs else None)
    return logs_of(builder.build(), Columns(**columns), path=Path("log"), kind="test")


def stepped(*ranges: range, mark: float = 0.0) -> list[dict[str, float]]:
    """A row a step; the loss tells which pass wrote it."""
    return [{"step": step, "loss": number + mark} for number, steps in enumerate(ranges) for step in steps]


def test_a_plain_log_is_one_run() -> None:
    (log,) = logs(stepped(range(10, 60, 10)))
    assert log.window.steps.tolist() == [10, 20, 30, 40, 50]
    assert log.window.present["loss"].all()
    assert not len(log.window.resumed)
    assert log.notes == ()
    assert np.isnan(log.window.time).all()


def test_a_resume_that_goes_back_takes_the_later_rows() -> None:
    (log,) = logs(stepped(range(1, 101), range(81, 121)))
    window = log.window
    assert window.steps.tolist() == list(range(1, 121))
    assert window.signals["loss"][window.steps >= 81].tolist() == [1.0] * 40
    assert window.resumed.tolist() == [81]
    assert log.notes == ("Resumed at step 81 after step 100: of repeated steps the later ones count.",)


def test_two_resumes_and_an_abandoned_end() -> None:
    (log,) = logs(stepped(range(1, 101), range(51, 61), range(41, 71)))
    # Steps 71 to 100 belong to a past that the last resume left behind.
    assert log.window.steps.tolist() == list(range(1, 71))
    assert log.window.signals["loss"][log.window.steps > 40].tolist() == [2.0] * 30
    assert log.window.resumed.tolist() == [41, 51]


def test_steps_that_begin_again_are_another_run() -> None:
    first, second = logs(stepped(range(0, 100, 10), range(0, 50, 10)))
    assert (first.name, second.name) == ("log #1", "log #2")
    assert first.window.steps.tolist() == list(range(0, 100, 10))
    assert second.window.signals["loss"].tolist() == [1.0] * 5


def test_another_run_that_logs_at_another_cadence_is_no_resume() -> None:
    first, second, third = logs(stepped(range(1, 601), range(10, 610, 10), range(1, 601)))
    assert [log.window.steps[0] for log in (first, second, third)] == [1, 10, 1]
    assert [len(log.window) for log in (first, second, third)] == [600, 60, 600]
    assert not any(len(log.window.resumed) for log in (first, second, third))


def test_a_gap_that_the_cadence_does_not_explain_is_an_interruption() -> None:
    (log,) = logs(stepped([*range(1, 101), *range(501, 601)]))  # type: ignore[arg-type]
    assert log.window.resumed.tolist() == [501]
    assert log.notes == ("Steps 101 to 500 are missing from the log; treated as an interruption.",)
    # Ten single steps and then every two hundredth is a cadence.
    (log,) = logs(stepped([*range(1, 11), *range(200, 4200, 200)]))  # type: ignore[arg-type]
    assert not len(log.window.resumed)


def test_a_few_late_rows_are_put_in_order() -> None:
    (log,) = logs(stepped([1, 2, 4, 3, 5, 6, 7, 8]))  # type: ignore[arg-type]
    assert log.window.steps.tolist() == list(range(1, 9))
    assert not len(log.window.resumed)
    assert "1 row written after rows of later steps: sorted." in log.notes


def test_rows_out_of_order_everywhere_are_sorted() -> None:
    steps = np.random.default_rng(0).permutation(5000)
    (log,) = logs([{"step": float(step), "loss": float(step)} for step in steps])
    assert log.window.steps.tolist() == list(range(5000))
    assert log.window.signals["loss"].tolist() == list(range(5000))
    assert "out of order" in log.notes[0]


def test_the_newest_row_first_is_one_run() -> None:
    (log,) = logs([{"step": step, "loss": 300.0 - step} for step in range(300, 0, -1)])
    assert log.window.steps.tolist() == list(range(1, 301))
    assert log.window.signals["loss"].tolist() == [300.0 - step for step in range(1, 301)]
    assert log.notes == ("Steps are out of order in 299 places; the rows were sorted by step.",)


def test_rows_of_one_step_are_merged_and_the_last_value_holds() -> None:
    (log,) = logs(
        [{"step": 1, "lr": 0.1}, {"step": 1, "loss": 3.0}, {"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.0}]
    )
    assert log.window.signals["loss"].tolist() == [2.0, 1.0]
    assert log.window.signals["learning_rate"][0] == 0.1
    assert log.window.present["learning_rate"].tolist() == [True, False]


def test_named_runs_are_told_apart_even_when_their_rows_alternate() -> None:
    rows = [{"step": float(step), "loss": loss} for step in range(1, 6) for loss in (1.0, 2.0)]
    rows[3]["eval_loss"] = 7.0
    first, second = logs(rows, runs=["a", "b"] * 5)
    assert (first.name, second.name) == ("log a", "log b")
    assert set(first.window.signals["loss"].tolist()) == {1.0}
    assert not first.window.metrics
    assert second.window.metrics["eval_loss"].values.tolist() == [7.0]


def test_steps_that_count_within_an_epoch_are_counted_through() -> None:
    rows = [
        {"epoch": float(epoch), "step": float(step), "loss": 1.0} for epoch in (1, 2, 3) for step in range(0, 50, 10)
    ]
    (log,) = logs(rows)
    assert log.window.steps.tolist() == list(range(0, 150, 10))
    assert not len(log.window.resumed)
    assert "restarts its steps in every epoch" in log.notes[0]


def test_without_steps_whole_epochs_are_the_steps() -> None:
    rows = [{"epoch": float(epoch), "loss": 9.0 - epoch, "total_steps": 900.0} for epoch in range(3, 8)]
    (log,) = logs([*rows, {"epoch": 7.0, "val_loss": 1.0}])
    assert log.window.steps.tolist() == [3, 4, 5, 6, 7]
    assert log.window.metrics["val_loss"].steps.tolist() == [7]
    assert log.window.facts == {}  # planned steps are no epochs
    assert log.notes == ("The log counts epochs instead of steps; a step is an epoch here.",)


def test_without_steps_the_position_is_the_step() -> None:
    (log,) = logs([{"epoch": 0.5, "loss": 3.0}, {"val_loss": 9.0}, {"epoch": 1.0, "loss": 2.0}, {"val_loss": 8.0}])
    assert log.window.steps.tolist() == [1, 2]
    assert log.window.series("epoch").values.tolist() == [0.5, 1.0]
    # What was logged between has the step of the row before.
    assert log.window.metrics["val_loss"].steps.tolist() == [1, 2]
    assert "no steps" in log.notes[0]
    (log,) = logs([{"step": 1.5, "loss": 3.0}, {"step": 2.5, "loss": 2.0}])
    assert log.window.steps.tolist() == [1, 2]
    assert "The column 'step' does not count steps;" in log.notes[0]


def test_nan_and_inf_are_measured_and_stay() -> None:
    (log,) = logs([{"step": 1, "loss": 1.0}, {"step": 2, "loss": float("nan")}, {"step": 3, "loss": float("inf")}])
    values = log.window.series("loss").values
    assert np.isnan(values[1])
    assert np.isinf(values[2])
    assert len(log.window.applied("loss")) == 1


def test_a_row_without_a_step_and_a_step_that_is_none() -> None:
    (log,) = logs(
        [{"step": 1, "loss": 1.0}, {"loss": 5.0}, {"step": float("nan"), "loss": 6.0}, {"step": 2, "loss": 2.0}]
    )
    assert log.window.signals["loss"].tolist()[:1] == [1.0]


def test_evaluations_keep_their_own_steps() -> None:
    rows = [{"step": float(step), "loss": 1.0} for step in range(1, 101)]
    rows.insert(50, {"step": 50, "eval_loss": 3.0})
    rows.append({"step": 100, "eval_loss": 2.0})
    (log,) = logs(rows)
    assert len(log.window) == 100
    assert log.window.metrics["eval_loss"].steps.tolist() == [50, 100]


def test_planned_steps_and_skipped_steps() -> None:
    rows = [
        {"step": s, "loss": 1.0, "total_steps": 500.0, "skipped iterations": float(s == 3)} for s in (1.0, 2.0, 3.0)
    ]
    (log,) = logs(rows)
    assert log.window.facts == {"planned_steps": 500.0}
    assert log.window.skipped.tolist() == [False, False, True]


def test_of_a_log_that_is_too_long_the_newest_rows_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "ROWS_MAX", 1000)
    monkeypatch.setattr(rows_module, "BLOCK_ROWS", 100)
    (log,) = logs(stepped(range(1, 5001)))
    assert log.window.steps.tolist() == list(range(4001, 5001))
    assert log.notes == ("5,000 rows are in the log; only the newest 1,000 were read.",)


def test_nothing_with_a_step_is_an_error() -> None:
    with pytest.raises(UsageError, match="no numbers"):
        logs([{}])
