"""Logs that have metrics and no loss, and losses that measure no progress."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import steadytrain
from steadytrain.core.errors import UsageError
from steadytrain.core.metric_names import direction
from steadytrain.core.model import Series
from steadytrain.grouping import judge
from steadytrain.grouping.catalog import log_detectors
from steadytrain.logs.column_names import loss_may_rise
from steadytrain.testing import steps

GOOD, BAD = [900, 300, 150, 90, 70, 66], [900, 300, 150, 1000, 1200, 1300]


@pytest.mark.parametrize(("values", "health"), [(GOOD, "healthy"), (BAD, "watch")])
def test_a_table_and_a_text_of_perplexities(tmp_path: Path, values: list[int], health: str) -> None:
    table, text = tmp_path / "ppl.csv", tmp_path / "ppl.txt"
    table.write_text("epoch,perplexity\n" + "".join(f"{n},{value}\n" for n, value in enumerate(values)))
    text.write_text("".join(f"epoch {n} perplexity {value}\n" for n, value in enumerate(values)))
    for run in steadytrain.analyze(table, text).runs:
        assert run.judgement.health == health
        assert run.log.window.metrics["perplexity"].values.tolist() == values


def test_four_rows_of_a_metric_are_no_log(tmp_path: Path) -> None:
    path = tmp_path / "ppl.csv"
    path.write_text("epoch,perplexity\n1,3\n2,2\n3,1\n4,1\n")
    with pytest.raises(UsageError, match="no column looks like a training loss"):
        steadytrain.analyze(path)


def test_what_is_better_follows_from_the_name() -> None:
    assert {direction(name) for name in ("val_accuracy", "episode_return_mean", "eval/f1")} == {1}
    assert {direction(name) for name in ("val_ppl", "test error", "eval_loss")} == {-1}
    assert {direction(name) for name in ("rewards/rejected", "return_std", "foo", "eval_runtime")} == {0}


def test_columns_say_that_a_loss_measures_no_progress() -> None:
    assert loss_may_rise(["step", "generator_loss"])
    assert loss_may_rise(["step", "loss", "episode_return"])
    assert not loss_may_rise(["step", "loss", "rewards/chosen", "rewards/rejected"])
    assert not loss_may_rise(["step", "train_loss", "val_loss", "lr"])


@pytest.mark.parametrize("staged", [True, False])
def test_a_column_of_stages_excuses_what_is_critical(staged: bool) -> None:
    after = np.arange(120) >= 60
    window = steps(loss=2.0 * np.exp(-np.arange(120) / 40.0) + np.where(after, 6.0, 0.0))
    stage = Series(window.steps, after.astype(np.float64) if staged else np.zeros(120))
    judged = judge(replace(window, metrics={"stage": stage}), log_detectors())
    grave = {symptom.name for symptom in judged.symptoms if symptom.severity == "critical"}
    assert bool(grave) != staged
