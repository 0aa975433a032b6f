"""A signal in bounded memory: extremes and values that are not finite survive, in whatever pieces they come."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from steadytrain.live.dots import draw
from steadytrain.live.stretches import Stretches, of_values, resampled

VALUES = st.lists(st.floats(-1e6, 1e6) | st.sampled_from([np.nan, np.inf, -np.inf]), min_size=1, max_size=300)


@given(VALUES, st.integers(1, 40), st.integers(1, 90))
def test_extremes_and_counts_are_those_of_all_values(values: list[float], piece: int, columns: int) -> None:
    stretches = Stretches(16)
    array = np.array(values)
    for start in range(0, len(array), piece):
        part = array[start : start + piece]
        stretches.add(np.arange(start, start + len(part)) + 5, part)
    held = stretches.held()
    assert held is not None
    finite = array[np.isfinite(array)]
    for shown in (held, resampled(held, columns)):
        known = ~np.isnan(shown.smallest)
        if columns >= len(held.smallest) or shown is held or known.any():
            assert shown.first_step == 5
        assert known.any() == bool(len(finite))
        if len(finite):
            assert np.nanmin(shown.smallest) == finite.min()
            assert np.nanmax(shown.largest) == finite.max()
            assert np.isin(shown.sample[~np.isnan(shown.sample)], finite).all()
    assert held.bad.sum() == len(array) - len(finite)
    assert len(held.smallest) <= 16


def test_a_step_that_comes_again_counts_in_its_place() -> None:
    stretches = Stretches(16)
    stretches.add(np.array([10, 11, 12]), np.array([1.0, 2.0, 3.0]))
    stretches.add(np.array([3, 11]), np.array([9.0, -4.0]))  # rolled back, once to before the first
    held = stretches.held()
    assert held is not None
    assert (held.smallest.tolist(), held.largest.tolist()) == ([1.0, -4.0, 3.0], [9.0, 2.0, 3.0])


def test_one_bad_step_and_one_spike_are_seen_among_a_million() -> None:
    values = np.full(1_000_000, 2.0)
    values[700_000], values[400_000] = np.nan, 500.0
    stretches = Stretches()
    stretches.add(np.arange(1_000_000), values)
    held = stretches.held()
    assert held is not None
    drawn = draw(held, 40, 4)
    assert (drawn.bad, drawn.largest, drawn.logarithmic) == (1, 500.0, True)
    assert drawn.lines[0].index("✗") == 28
    assert drawn.lines[0][16] not in (" ", drawn.lines[0][15])
    assert {len(line) for line in drawn.lines} == {40}


def test_a_falling_curve_falls_and_needs_no_unicode() -> None:
    held = of_values(np.arange(8), np.arange(8)[::-1].astype(float))
    assert held is not None
    drawn = draw(held, 4, 2, ascii_only=True)
    assert drawn.lines[0].startswith("**")
    assert drawn.lines[1].rstrip().endswith("**")
    assert set("".join(drawn.lines)) <= {"*", " "}


def test_a_constant_and_a_curve_without_a_finite_value_are_drawn() -> None:
    for values in ([2.0, 2.0], [np.nan, np.inf]):
        held = of_values(np.arange(2), np.array(values))
        assert held is not None
        assert len(draw(held, 10, 3).lines) == 3
