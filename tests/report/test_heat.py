"""Heat maps: bounded whatever the run, the worst value kept, and what was not measured told apart."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from steadytrain.report.heat import ABSENT, COLUMNS_MAX, HIGHEST, LOWEST, NOT_FINITE, ROWS_MAX, Heat, heat, over_steps
from steadytrain.report.svg import WIDE
from steadytrain.report.svg_heat import LEFT_MAX, LEFT_MIN, drawing, labelled_rows, labels_width, legend

NAN, INF = np.nan, np.inf


def map_of(values: object, *, steps: object = None, layers: object = None, logarithmic: bool = True) -> Heat:
    cells = np.asarray(values, np.float32)
    found = heat(
        "gradient_norm",
        "gradient norm",
        [f"layer.{index}.weight" for index in range(cells.shape[1])] if layers is None else list(layers),  # type: ignore[call-overload]
        np.arange(1, len(cells) + 1) if steps is None else np.asarray(steps, np.int64),
        cells,
        logarithmic=logarithmic,
    )
    assert found is not None
    return found


def drawn(shown: Heat) -> str:
    return drawing(shown, WIDE.across(shown.starts[0], shown.starts[-1]), left=100)


def test_each_value_has_its_cell_and_its_colour() -> None:
    shown = map_of([[1e-3, 1.0], [1e-2, 0.1]])
    assert shown.starts == (1, 2, 3)
    assert shown.values.tolist() == np.array([[1e-3, 1e-2], [1.0, 0.1]], np.float32).tolist()
    assert shown.levels.tolist() == [[LOWEST, 85], [HIGHEST, 170]]
    assert (shown.low, shown.high) == (pytest.approx(1e-3), 1.0)
    assert shown.texts() == [["0.001", "0.01"], ["1", "0.1"]]


def test_what_was_not_measured_is_hatched_and_no_colour() -> None:
    shown = map_of([[1.0, NAN], [2.0, NAN], [NAN, 0.5]])
    assert shown.levels[1].tolist()[:2] == [ABSENT, ABSENT]
    assert shown.levels[0, 2] == ABSENT
    assert (shown.levels == NOT_FINITE).sum() == 0
    assert shown.texts()[1][0] == ""
    assert '<rect class="absent"' in drawn(shown)
    assert "not measured" in legend(shown)


def test_a_layer_that_was_never_measured_has_no_row_and_a_map_of_nothing_is_none() -> None:
    assert [row.name for row in map_of([[1.0, NAN, 2.0]]).rows] == ["layer.0.weight", "layer.2.weight"]
    nothing = np.full((3, 1), NAN, np.float32)
    assert heat("x", "x", ["a"], np.arange(3), nothing, logarithmic=True) is None


def test_what_is_not_finite_is_marked_named_and_kept_before_every_number() -> None:
    values = np.ones((5_000, 3), np.float32)
    values[2_345, 1] = INF
    values[2_345, 2] = 1e30
    shown = map_of(values)
    assert [row.not_finite for row in shown.rows] == [False, True, False]
    assert (shown.levels[1] == NOT_FINITE).sum() == 1
    assert shown.captions[0] == "First not finite at step 2,346: layer.1.weight."
    assert shown.captions[1] == "Largest: 1e+30 in layer.2.weight at step 2,346."
    assert "first not finite at step 2,346" in shown.rows[1].title
    assert '<text class="tick bad"' in drawn(shown)
    assert "✗ 1.weight" in drawn(shown)


@pytest.mark.parametrize(("steps", "layers"), [(1, 1), (1, 5_000), (50_000, 3), (2_000, 3_000)])
def test_a_map_stays_bounded(steps: int, layers: int) -> None:
    random = np.random.default_rng(1)
    values = random.random((steps, layers), np.float32) + np.float32(1e-3)
    values[steps // 2, layers // 3] = 77.0
    names = [f"model.blocks.{index // 2}.mlp.{'up' if index % 2 else 'down'}.weight" for index in range(layers)]
    shown = map_of(values, layers=names)
    assert shown.levels.shape == shown.values.shape == (len(shown.rows), len(shown.starts) - 1)
    assert len(shown.rows) <= ROWS_MAX
    assert len(shown.starts) <= COLUMNS_MAX + 1
    # The one value that sticks out is seen, and it is said where it was.
    assert shown.values.max() == 77.0
    assert f"Largest: 77 in {names[layers // 3]} at step {steps // 2 + 1:,}." in shown.captions
    assert len(drawn(shown)) < 160_000


def test_many_layers_share_rows_and_the_caption_says_so() -> None:
    names = [f"model.blocks.{index}.weight" for index in range(1_000)]
    shown = map_of(np.ones((2, 1_000)), layers=names)
    assert "1,000 layers in 200 rows: a row shows the largest of its block." in shown.captions
    assert "All names begin with model.blocks." in shown.captions
    assert "(largest of 5 layers)" in shown.rows[0].title


def test_a_reading_stands_until_the_next_but_not_over_a_silence() -> None:
    steps = np.array([1, 11, 21, 31, 1_001, 1_011])
    starts, cells = over_steps(steps, np.arange(1.0, 7.0, dtype=np.float32)[:, None])
    column_of = dict(zip(starts.tolist(), cells[:, 0].tolist(), strict=False))
    assert [column_of[step] for step in (1, 11, 21, 31)] == [1, 2, 3, 4]
    between = [value for start, value in column_of.items() if 100 < start < 1_000]
    assert len(between) > 50
    assert np.isnan(between).all()


def test_dense_readings_near_a_symptom_do_not_leave_the_rest_blank() -> None:
    steps = np.array([*range(0, 500, 50), *range(520, 585), 600])
    _, cells = over_steps(steps, np.ones((len(steps), 1), np.float32))
    assert not np.isnan(cells).any()


def test_readings_out_of_order_are_put_in_order() -> None:
    assert map_of([[3.0], [1.0], [2.0]], steps=[3, 1, 2]).values.tolist() == [[1.0, 2.0, 3.0]]


@given(
    st.lists(st.integers(0, 10**7), min_size=1, max_size=40, unique=True).map(sorted),
    st.lists(st.sampled_from([NAN, INF, 0.0, 1e-38, 1.0, 3e38]), min_size=40, max_size=40),
)
def test_no_reading_is_lost_between_columns(steps: list[int], numbers: list[float]) -> None:
    values: NDArray[np.float32] = np.array(numbers[: len(steps)], np.float32)[:, None]
    starts, cells = over_steps(np.array(steps), values)
    assert len(starts) == len(cells) + 1 <= COLUMNS_MAX + 1
    assert starts[0] == steps[0]
    assert starts[-1] > steps[-1]
    assert (np.diff(starts) > 0).all()
    assert np.nan_to_num(np.nanmax(cells, initial=-1.0), posinf=INF) == np.nanmax(values, initial=-1.0)


@pytest.mark.parametrize("values", [[[0.0]], [[INF]], [[0.0, INF]], [[2.0, 2.0]], [[-1.0, 1.0]], [[1e-45, 3e38]]])
@pytest.mark.parametrize("logarithmic", [True, False])
def test_maps_of_any_values_are_drawn(values: list[list[float]], logarithmic: bool) -> None:
    shown = map_of(values, logarithmic=logarithmic)
    assert ((shown.levels == NOT_FINITE) == np.isinf(shown.values)).all()
    assert not re.search(r'="(nan|inf|-inf)"', drawn(shown))


def test_labels_have_room_and_those_of_bad_rows_come_first() -> None:
    values = np.ones((1, 200))
    values[0, 101] = INF
    shown = map_of(values)
    labelled = labelled_rows(shown)
    assert 101 in labelled
    assert min(np.diff(labelled)) >= 3
    assert labels_width([]) == LEFT_MIN
    assert LEFT_MIN < labels_width([shown]) < LEFT_MAX
    assert labels_width([map_of([[INF]], layers=["x" * 500])]) == LEFT_MAX


def test_names_are_escaped() -> None:
    evil = "<script>&\"'"
    text = drawn(map_of([[1.0, INF]], layers=[evil, "b"]))
    assert "<script>" not in text
    assert "&lt;script&gt;&amp;" in text
