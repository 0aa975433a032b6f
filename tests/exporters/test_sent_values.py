"""Which values are sent, under which names, how often."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from builders import records
from feeding import BINS, histogram_reading
from steadytrain.core.model import GRADIENT_ABSENT, Reading
from steadytrain.exporters import sent_values
from steadytrain.exporters.exporter import Histogram, known_tools
from steadytrain.exporters.sent_values import FULL_CADENCE_COUNT, ROWS_PER_TABLE_MAX, Allowance, Cadence
from steadytrain.storage.segments import StepRecord

NAN = float("nan")


def reading(table: str, columns: dict[str, list[float]], rows: tuple[str, ...] = ()) -> Reading:
    measured = np.array(list(columns.values()), np.float32).T
    return Reading(table, rows or tuple(f"layer.{at}" for at in range(len(measured))), tuple(columns), measured)


def test_signals_are_what_was_measured_and_what_was_done() -> None:
    scalars = {"loss": NAN, "gradient_norm": 2.0, "tokens": None}
    row = sent_values.signals("main", StepRecord(7, 1.5, scalars, np.zeros(0, np.float32), refused=True))
    assert (row.step, row.time, row.rare) == (7, 1.5, False)
    assert math.isnan(row.values.pop("loss"))
    assert row.values == {"gradient_norm": 2.0, "refused": 1.0}


def test_another_optimizer_s_steps_have_names_of_their_own() -> None:
    record = records(1)[0]
    names = sent_values.signals("optimizer-2", record).values
    assert all(name.startswith("optimizer-2/") for name in names)
    table = sent_values.scalars("optimizer-2", 1, 0.0, reading("modules", {"std": [1.0]}, ("head",)))
    assert "optimizer-2/modules/head/std" in table.values


def test_a_gradient_that_is_nan_is_sent_and_one_that_is_absent_is_not() -> None:
    record = StepRecord(1, 0.0, {}, np.array([NAN, GRADIENT_ABSENT, 3.0], np.float32))
    table = sent_values.scalars("main", 1, 0.0, sent_values.gradient_reading(record, ("a", "b", "c")))
    assert math.isnan(table.values["gradients/a/norm"])
    assert "gradients/b/norm" not in table.values
    assert table.values["gradients/c/norm"] == 3.0
    assert math.isnan(table.values["gradients/norm_largest"])


def test_what_was_not_measured_is_not_sent() -> None:
    table = sent_values.scalars(
        "main", 1, 0.0, reading("modules", {"std": [NAN, 2.0, 4.0], "abs_max": [NAN, NAN, NAN]})
    )
    assert table.values == {
        "modules/layer.1/std": 2.0,
        "modules/layer.2/std": 4.0,
        "modules/std_median": 3.0,
        "modules/std_largest": 4.0,
    }


def test_the_root_module_has_no_name_of_its_own() -> None:
    table = sent_values.scalars("main", 1, 0.0, reading("modules", {"log_z_max": [8.0]}, ("",)))
    assert table.values["modules/log_z_max"] == 8.0


def test_ten_thousand_tensors_are_a_bounded_number_of_names_from_the_first_to_the_last() -> None:
    count = 10_000
    columns = {name: [1.0] * count for name in (*sent_values.COLUMNS["tensors"], "gradient_min", "gradient_max")}
    sent = sent_values.scalars("main", 1, 0.0, reading("tensors", columns)).values
    chosen = sent_values.COLUMNS["tensors"]
    assert len(sent) == (ROWS_PER_TABLE_MAX + 2) * len(chosen)
    assert "tensors/layer.0/update_ratio" in sent
    assert "tensors/layer.9999/update_ratio" in sent
    assert sent_values.chosen_rows(count) == sent_values.chosen_rows(count)


@pytest.mark.parametrize("count", [0, 1, ROWS_PER_TABLE_MAX, ROWS_PER_TABLE_MAX + 1, 5 * ROWS_PER_TABLE_MAX])
def test_chosen_rows_are_there(count: int) -> None:
    rows = sent_values.chosen_rows(count)
    assert len(rows) == min(count, ROWS_PER_TABLE_MAX)
    assert rows == sorted(set(rows))
    assert not count or (rows[0], rows[-1]) == (0, count - 1)


def test_the_columns_that_are_sent_are_measured() -> None:
    measured = pytest.importorskip("steadytrain.capture.tensors.statistics", exc_type=ImportError)
    activations = pytest.importorskip("steadytrain.capture.tensors.activations.module_columns", exc_type=ImportError)
    assert set(sent_values.COLUMNS["tensors"]) <= set(measured.COLUMNS)
    assert set(sent_values.COLUMNS["modules"]) <= set(activations.COLUMNS)
    assert measured.HISTOGRAM_COLUMNS == BINS


def test_signals_go_out_as_often_as_a_tool_says() -> None:
    assert {name: tool.signals_every_steps for name, tool in known_tools().items()} == {
        "mlflow": 10,
        "otel": 1,
        "prometheus": 1,
        "tensorboard": 1,
        "wandb": 1,
    }


def test_histograms_have_every_bin_and_leave_out_what_was_not_measured() -> None:
    found = sent_values.histograms("main", 3, 1.0, histogram_reading())
    assert [histogram.name for histogram in found] == ["gradients/head.weight", "weights/head.weight"]
    (first, _) = found
    assert (first.first, len(first.shares), first.zero, first.nonfinite) == (-40, 64, 0.25, 0.0)
    assert sum(first.bars) == 1.0
    assert len(first.edges) == len(first.bars) + 1
    by_edge = dict(zip(first.edges, first.bars, strict=False))
    assert {edge: bar for edge, bar in by_edge.items() if bar} == {-42: 0.25, -2: 0.5, -1: 0.25}


def test_a_histogram_over_the_values_has_the_sign_and_the_shape_of_its_tensor() -> None:
    random = np.random.default_rng(7)
    values = np.concatenate([random.normal(0.3, 1.0, 20_000), random.normal(0, 1e-6, 1000), [0.0] * 500, [900.0]])
    powers = range(-40, 24)

    def shares(of: np.ndarray) -> list[float]:
        found = np.floor(np.log2(np.abs(of[of != 0])))
        return [float((found == power).sum()) / len(values) for power in powers]

    zero = float((values == 0).mean())
    own = Histogram(1, 0.0, "a", -40, shares(values), zero, 0.0, 0.0, 0.0, [0.0, *shares(values[values > 0]), 0.0])
    assert own.positive_share == pytest.approx((values > 0).sum() / (values != 0).sum())
    signed = own.signed(16)
    assert signed is not None
    heights, edges = signed
    assert (edges[0], edges[-1], len(heights)) == (-4.0, 4.0, 16)
    assert sum(heights) == pytest.approx(1.0)
    middle = len(heights) // 2
    expected, _ = np.histogram(values.clip(-3.99, 3.99), bins=edges)
    assert sum(heights[:middle]) == pytest.approx((values < 0).mean() + zero / 2)
    # Whole powers of two are exact: from 1 to 2, and from 2 to 4 with what is outside.
    assert sum(heights[middle + 2 : middle + 4]) == pytest.approx(expected[middle + 2 : middle + 4].sum() / len(values))
    assert sum(heights[middle + 4 :]) == pytest.approx(expected[middle + 4 :].sum() / len(values))
    assert np.abs(np.array(heights) - expected / len(values)).max() < 0.05
    assert replace(own, positive=None).signed(16) is None


def test_many_histograms_are_bounded_for_each_kind() -> None:
    rows = tuple(f"{kind}:layer.{at}" for kind in ("gradient", "weight", "activation") for at in range(1000))
    shares = np.zeros((len(rows), len(BINS)), np.float32)
    found = sent_values.histograms("main", 1, 0.0, Reading("histograms", rows, BINS, shares))
    assert len(found) == 3 * ROWS_PER_TABLE_MAX
    assert {histogram.name for histogram in found} >= {"gradients/layer.0", "weights/layer.999", "activations/layer.0"}


def test_the_first_step_is_due_and_then_every_so_many() -> None:
    cadence = Cadence(10)
    assert [step for step in range(3, 45) if cadence.due(step)] == [3, 10, 20, 30, 40]


def test_a_step_that_was_not_asked_for_in_time_is_made_up_for() -> None:
    cadence = Cadence(10)
    assert [step for step in (1, 7, 26, 27, 30, 31) if cadence.due(step)] == [1, 26, 30]


def test_a_long_run_is_sent_ever_more_thinly() -> None:
    cadence = Cadence(1)
    sent = [step for step in range(1, 1_000_001) if cadence.due(step)]
    assert sent[:FULL_CADENCE_COUNT] == list(range(1, FULL_CADENCE_COUNT + 1))
    assert len(sent) < 70_000
    assert 1_000_000 - sent[-1] < 128


def test_a_fast_loop_is_sent_so_many_rows_a_second_after_the_first_ones() -> None:
    allowance = Allowance(20.0, 500)
    sent = [step for step in range(60_000) if allowance.takes(1.79e9 + step / 1000)]
    assert sent[:500] == list(range(500))
    assert len(sent) == pytest.approx(500 + 60 * 20, abs=2)


def test_a_slow_loop_is_sent_whole_and_a_clock_that_is_set_back_does_no_harm() -> None:
    allowance = Allowance(20.0, 5)
    assert all(allowance.takes(float(time)) for time in range(100))
    assert sum(allowance.takes(50.0) for _ in range(100)) == 4
    assert not allowance.takes(49.0)
    assert allowance.takes(100.0)
