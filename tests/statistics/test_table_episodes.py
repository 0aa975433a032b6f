from __future__ import annotations

import math

import numpy as np
import pytest

from steadytrain.core.model import Cells, Window
from steadytrain.statistics.table_episodes import (
    NAMES_MAX,
    apart,
    applied_cells,
    before,
    episodes,
    is_coarse,
    loss_change,
    loss_jump,
    stretches,
    sustained,
    unskipped_cells,
)
from steadytrain.testing import steps
from steadytrain.testing.windows import table

NAN = math.nan


def test_uneven_readings_are_thinned_by_absolute_steps() -> None:
    at = np.array([50, 100, 150, 151, 152, 160, 161, 175, 176, 177, 200])
    assert at[apart(at, 16)].tolist() == [50, 100, 150, 160, 176, 200]
    assert at[apart(at, 1)].tolist() == at.tolist()
    later = at[3:]
    assert set(later[apart(later, 16)][1:]) <= set(at[apart(at, 16)])


def test_skipped_and_refused_readings() -> None:
    held = table("modules", at=[1, 2, 3, 4], std={"a": [1.0, 2.0, 3.0, NAN]})
    window = steps(loss=[1.0] * 4, skipped=[2], refused=[3], tables={"modules": held})
    applied, unskipped = applied_cells(window, "modules", "std"), unskipped_cells(window, "modules", "std")
    assert applied is not None
    assert unskipped is not None
    assert applied.steps.tolist() == [1]
    assert unskipped.steps.tolist() == [1, 3]
    assert applied_cells(window, "modules", "mean") is None
    assert applied_cells(window, "tensors", "std") is None


def test_what_was_not_measured_neither_counts_nor_ends_anything() -> None:
    values = np.array([[9.0, 9.0], [NAN, NAN], [9.0, 1.0], [NAN, NAN], [9.0, 9.0]])
    kept = sustained(values > 5.0, ~np.isnan(values), 3)
    assert kept[:, 0].all()
    assert not kept[:, 1].any()


def test_stretches() -> None:
    rows = np.array([True, False, True, False, False, False, True])
    assert stretches(rows) == [(0, 1), (2, 3), (6, 7)]
    assert stretches(rows, hole_max=1) == [(0, 3), (6, 7)]
    assert stretches(np.zeros(3, np.bool_)) == []


def test_episodes_name_first_what_began_first() -> None:
    cells = Cells(np.array([10, 20, 30, 40, 50, 60, 70, 80]), ("a", "b"), np.zeros((8, 2)))
    beyond = np.zeros((8, 2), np.bool_)
    beyond[2:4, 0], beyond[1:3, 1], beyond[7, 0] = True, True, True
    first, second = episodes(steps(loss=[1.0] * 80), cells, beyond)
    assert (first.first_step, first.last_step, first.rows) == (20, 40, ("b", "a"))
    assert (second.first_step, second.last_step, second.rows) == (80, 80, ("a",))
    assert first.when() == "from step 20 to 40"
    assert first.who("tensors") == "2 tensors (b first)"
    assert second.who("tensors") == "a"


def test_names_are_bounded() -> None:
    rows = tuple(f"layer.{row}" for row in range(100))
    (episode,) = episodes(steps(loss=[1.0] * 9), Cells(np.array([9]), rows, np.ones((1, 100))), np.ones((1, 100), bool))
    assert len(episode.names) == NAMES_MAX
    assert len(episode.rows) == 100


FLAT = [2.0, 2.1, 1.9, 2.0, 2.1] * 40


def test_the_loss_before_and_after() -> None:
    assert abs(loss_change(steps(loss=FLAT), 100, 200)) < 1.0
    assert loss_change(steps(loss=FLAT[:100] + [5.0] * 100), 101, 200) > 10.0
    assert loss_change(steps(loss=FLAT[:100] + [0.5] * 100), 101, 200) < -10.0
    assert loss_change(steps(loss=FLAT[:100] + [NAN] * 100), 101, 200) == math.inf
    assert loss_change(steps(loss=[2.0, 3.0]), 1, 2) == 0.0
    assert loss_change(steps(gradient_norm=FLAT), 1, 200) == 0.0
    assert loss_change(steps(loss=np.linspace(3.0, 1.0, 200)), 1, 200) < -10.0  # nothing before: its own first steps


def test_a_skipped_step_is_no_jump_of_the_loss() -> None:
    loss = [*FLAT[:150], 90.0, *FLAT[151:]]
    assert loss_jump(steps(loss=loss), 145, 160) > 100.0
    assert loss_jump(steps(loss=loss, skipped=[151]), 145, 160) < 5.0
    assert loss_jump(steps(loss=loss), 160, 170) < 5.0
    assert loss_jump(steps(loss=[*FLAT[:150], NAN]), 145, 160) == math.inf


def test_a_jump_is_measured_by_the_tail_of_the_loss() -> None:
    """Most batches cost next to nothing; what one in ten costs is no jump, and ten times that is."""
    loss = [0.3 if step % 10 == 0 else 0.01 + 0.001 * (step % 3) for step in range(200)]
    assert loss_jump(steps(loss=loss), 145, 160) < 8.0
    loss[150] = 3.0
    assert loss_jump(steps(loss=loss), 145, 160) > 8.0


def test_the_reference_before_a_value_leaves_a_gap() -> None:
    values = np.arange(20.0)
    median, scale = before(values, np.array([2, 12]), width=5, gap=3, least=3)
    assert median.tolist() == [math.inf, 6.0]  # the median of 4 to 8, three before 12
    assert scale[1] == pytest.approx(1.4826)


def weights(*values: float) -> Window:
    rows = {f"w.{row}": [value, value] for row, value in enumerate(values)}
    lowest = {name: [-value for value in row] for name, row in rows.items()}
    return steps(loss=[1.0] * 2, tables={"tensors": table("tensors", at=[1, 2], weight_min=lowest, weight_max=rows)})


def test_the_format_of_weights_is_told_by_their_bits() -> None:
    assert is_coarse(weights(0.0703125, 1.0, 0.4375))  # bfloat16
    assert is_coarse(weights(float(np.float16(0.0712345)), float(np.float16(0.3))))
    assert not is_coarse(weights(0.0712345, 0.3123456, 0.9))
    assert not is_coarse(weights(1.0, 0.0))  # as norms and biases begin
    assert not is_coarse(steps(loss=[1.0]))


def test_an_episode_at_the_edge_of_a_window_that_slides() -> None:
    names = set()
    for start in range(5000, 5600, 16):
        window = steps(loss=[1.0] * 512, first_step=start)
        at = np.arange(-(-start // 50) * 50, start + 512, 50)
        (episode,) = episodes(window, Cells(at, ("a",), np.ones((len(at), 1))), np.ones((len(at), 1), np.bool_))
        assert episode.seen_step == at[0] <= episode.first_step <= episode.last_step
        names.add(episode.first_step)
    assert len(names) <= 5


def test_what_ends_before_the_next_round_step_is_named_by_its_last() -> None:
    window = steps(loss=[1.0] * 512, first_step=5010)
    cells = Cells(np.arange(5050, 5500, 50), ("a",), np.ones((9, 1)))
    (episode,) = episodes(window, cells, np.arange(9)[:, None] < 1)
    assert (episode.first_step, episode.last_step) == (5050, 5050)


def test_a_whole_log_that_was_resumed_begins_where_it_begins() -> None:
    window = steps(loss=[1.0] * 4000, first_step=5001)
    cells = Cells(np.array([5050, 5100]), ("a",), np.ones((2, 1)))
    (episode,) = episodes(window, cells, np.ones((2, 1), np.bool_))
    assert episode.first_step == 5050
