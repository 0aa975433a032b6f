"""The lagged reference: what it measures, what it refuses, and that overlapping windows agree."""

from __future__ import annotations

import sys
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steadytrain.core.model import Series
from steadytrain.statistics import reference, rolling_baseline
from steadytrain.statistics.reference import CORRELATED, DOUBTFUL, ROUGH, SHUFFLED, reference_of
from steadytrain.statistics.rolling_baseline import follow, known_first_step
from steadytrain.testing import healthy_loss

SEEDS = st.integers(0, 2**32 - 1)


def noise(seed: int, count: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(count)


def series(values: np.ndarray, first_step: int = 1) -> Series:
    return Series(np.arange(first_step, first_step + len(values)), np.asarray(values, np.float64))


def test_median_scale_and_autocorrelations_are_the_textbook_ones() -> None:
    values = np.random.default_rng(3).normal(2.0, 0.5, 512)
    found = reference_of(values)
    median = np.median(values)
    scale = 1.4826 * np.median(np.abs(values - median))
    bounded = np.clip((values - median) / scale, -4, 4)
    bounded -= bounded.mean()
    assert found.level == pytest.approx(median)
    assert found.scale == pytest.approx(scale)
    far = [(bounded[lag:] * bounded[:-lag]).sum() / (bounded**2).sum() for lag in range(4, 17)]
    assert found.memory == pytest.approx(np.mean(far))
    assert found.lag_1 == pytest.approx(max(0.0, (bounded[1:] * bounded[:-1]).sum() / (bounded**2).sum()))


@pytest.mark.parametrize("level", [0.0, 3.0, -3.0])
def test_a_constant_signal_has_the_floor_as_its_scale(level: float) -> None:
    found = reference_of(np.full(128, level))
    assert found.scale == max(1e-3 * abs(level), 1e-6)
    assert (found.lag_1, found.memory) == (0.0, 0.0)


def test_the_drift_constants_follow_the_memory_of_the_reference() -> None:
    correlated = np.repeat(noise(0, 32), 16)
    assert reference_of(correlated).drift == CORRELATED
    assert reference_of(noise(0, 512)).drift == SHUFFLED


def test_slack_shrinks_and_the_alarm_grows_with_what_whitening_takes_from_a_shift() -> None:
    innovations, values = noise(6, 512), np.zeros(512)
    for i in range(1, 512):
        values[i] = 0.3 * values[i - 1] + innovations[i]
    found = reference_of(values)
    assert found.lag_1 == pytest.approx(0.3, abs=0.1)
    kept = found.whiten(np.ones(3))[-1]  # of a shift by one deviation
    assert found.drift.slack == pytest.approx(SHUFFLED.slack * kept)
    assert found.drift.alarm == pytest.approx(SHUFFLED.alarm / kept)
    doubtful = replace(found, memory=0.03)
    assert doubtful.drift.alarm == pytest.approx(DOUBTFUL.alarm / kept)
    assert replace(found, lag_1=0.9).drift.slack == pytest.approx(0.5 * SHUFFLED.slack)


def test_whitening_takes_out_the_lag_1_autocorrelation() -> None:
    innovations, values = noise(5, 4096), np.zeros(4096)
    for i in range(1, 4096):
        values[i] = 0.8 * values[i - 1] + innovations[i]
    found = reference_of(values)
    white = found.whiten(found.z(values))
    assert found.lag_1 == pytest.approx(0.8, abs=0.05)
    assert abs(np.corrcoef(white[1:], white[:-1])[0, 1]) < 0.05
    assert white.std() == pytest.approx(1.0, abs=0.1)


@given(seed=SEEDS, shift=st.floats(-50, 50), scale=st.floats(0.1, 100))
@settings(max_examples=25)
def test_a_track_does_not_depend_on_the_unit_or_the_zero_of_the_signal(seed: int, shift: float, scale: float) -> None:
    values = noise(seed, 700)
    values[400:] += 2.0
    track, moved = follow(series(values)), follow(series(scale * (values + shift)))
    np.testing.assert_allclose(moved.z, track.z, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(moved.cusum, track.cusum, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(moved.onset, track.onset)


@given(
    seed=SEEDS, bad=st.lists(st.tuples(st.integers(0, 899), st.sampled_from([np.nan, np.inf, -np.inf])), max_size=60)
)
@settings(max_examples=25)
def test_what_is_not_finite_never_enters(seed: int, bad: list[tuple[int, float]]) -> None:
    clean = series(noise(seed, 900))
    dirty = clean.values.copy()
    for row, value in bad:
        dirty[row] = value
    left = np.isfinite(dirty)
    track = follow(Series(clean.steps, dirty))
    without = follow(Series(clean.steps[left], clean.values[left]))
    assert np.isfinite(track.z).all()
    assert np.isfinite(track.cusum).all()
    np.testing.assert_array_equal(track.z, without.z)
    np.testing.assert_array_equal(track.cusum, without.cusum)


@given(seed=SEEDS, size=st.sampled_from([1e-300, 1e30, 1e300, 1.7e308]))
@settings(max_examples=20)
def test_any_finite_number_is_followed_without_a_warning(seed: int, size: float) -> None:
    values = np.clip(noise(seed, 600), -1, 1) * size
    track = follow(series(values))
    assert np.isfinite(track.cusum).all()
    assert not np.isnan(track.z).any()


@pytest.mark.parametrize("count", [0, 1, 127, 191, 192])
def test_there_is_no_track_before_128_reference_steps_and_the_gap(count: int) -> None:
    assert len(follow(series(noise(1, count)))) == 0


def test_the_track_begins_at_the_first_refresh_after_them() -> None:
    track = follow(series(noise(1, 400)))
    assert track.steps[0] == 208  # the first multiple of 16 with 192 values before it
    np.testing.assert_allclose(track.level[:16], np.median(noise(1, 400)[: 208 - 1 - 64]))


def test_overlapping_windows_agree_on_a_fault() -> None:
    values = 2.0 + 0.04 * noise(9, 6000)
    values[3500:] += 0.2
    seen: dict[int, set[int]] = {}
    for end in range(3520, 4400, 16):
        track = follow(series(values[end - 2048 : end], end - 2047))
        alarming = np.flatnonzero(track.cusum > track.alarm)
        if len(alarming):
            seen.setdefault(int(track.steps[track.onset[alarming[-1]]]), set()).add(end)
    assert list(seen) == [pytest.approx(3501, abs=5)]


def test_a_fault_freezes_the_reference_and_is_the_new_normal_after_a_thousand_steps() -> None:
    values = 2.0 + 0.04 * noise(2, 4000)
    values[1000:] += 0.4
    track = follow(series(values[: 1000 + 400]))
    assert track.level[-1] == pytest.approx(2.0, abs=0.02)
    assert (track.cusum[-300:] > track.alarm[-300:]).all()
    later = follow(series(values[2400 - 2048 : 2400], 2400 - 2047))
    assert later.level[-1] == pytest.approx(2.4, abs=0.02)
    assert later.cusum[-1] < later.alarm[-1] / 3


def test_a_reference_is_held_for_a_thousand_steps_at_most() -> None:
    for start in (700, 817, 1000):
        values = 2.0 + 0.04 * noise(start, 2048)
        values[start:] += 0.4
        track = follow(series(values))
        frozen = np.flatnonzero((track.cusum > track.alarm / 3) & (track.steps > start))
        changes = np.flatnonzero(np.diff(track.level[frozen]))
        held = int(changes[0]) + 1 if len(changes) else len(frozen)
        assert held <= 1000 + 16


def test_an_episode_that_fills_the_view_keeps_its_name_while_the_window_slides() -> None:
    names = {
        known_first_step(np.arange(start, start + 512), 0, first_seen=start, stride=1)
        for start in range(5000, 5200, 16)
    }
    assert len(names) <= 2
    assert known_first_step(np.arange(1, 513), 0, first_seen=1, stride=1) == 1


@pytest.mark.parametrize("at", [3001, 5210])
@pytest.mark.parametrize("rise", [0.12, 0.8])
def test_a_whole_log_and_a_window_that_slides_along_agree(at: int, rise: float) -> None:
    values = 2.0 + 0.04 * noise(at, 8000)
    values[at : at + 400] += rise
    whole = follow(series(values))
    for end in (at + 300, at + 900):
        slid = follow(series(values[end - 2048 : end], end - 2047))
        newest = np.searchsorted(whole.steps, slid.steps)
        recent = slice(-900, None)
        np.testing.assert_allclose(whole.z[newest][recent], slid.z[recent])
        np.testing.assert_allclose(whole.cusum[newest][recent], slid.cusum[recent], atol=1e-9)
        np.testing.assert_array_equal(whole.steps[whole.onset[newest]][recent], slid.steps[slid.onset][recent])


@pytest.mark.parametrize("fall_steps", [50.0, 150.0, 400.0])
def test_no_fall_alarms_when_it_ends(fall_steps: float) -> None:
    for seed in range(5):
        track = follow(series(healthy_loss(6000, seed=seed, start=9.0, decay_steps=fall_steps)))
        assert (track.cusum < track.alarm).all()
        cliff = 2.0 + 0.04 * noise(seed, 4000)
        cliff[:2000] += 1.0
        assert (follow(series(cliff)).cusum < 15.0).all()


def test_a_rise_is_seen_while_the_loss_still_falls() -> None:
    slope = -0.04 / 40  # a standard deviation in 40 steps
    values = 9.0 + slope * np.arange(3000) + 0.04 * noise(3, 3000)
    values[2500:] += 0.4
    track = follow(series(values))
    assert track.z[2500 - track.begin] > 4.0
    alarming = np.flatnonzero(track.cusum > track.alarm)
    assert len(alarming)
    assert track.steps[alarming[0]] == pytest.approx(2515, abs=15)
    assert track.scale[2500 - track.begin] == pytest.approx(0.04, rel=0.5)


def test_the_mean_of_skewed_noise_is_no_drift() -> None:
    draw = np.random.default_rng(0)
    skewed = reference_of(draw.lognormal(0.0, 0.5, 512))
    assert skewed.skew > 0.15
    assert skewed.drift == ROUGH
    assert skewed.centre > 0.1
    assert reference_of(-draw.lognormal(0.0, 0.5, 512)).centre == 0.0
    alarms = 0
    for seed in range(4):
        track = follow(series(np.random.default_rng(seed).lognormal(0.0, 0.5, 20_000)))
        alarms += int(((track.cusum > track.alarm) & (np.roll(track.cusum, 1) <= track.alarm)).sum())
    assert alarms <= 8  # about 100 where the mean is not taken out


def test_a_held_reference_is_the_same_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    values = 2.0 + 0.04 * noise(6, 3000)
    values[1200:] += 0.3
    whole = follow(series(values))
    rolling_baseline._follow.cache_clear()
    monkeypatch.setattr(rolling_baseline, "_HELD_BLOCKS_AT_A_TIME", 3)
    monkeypatch.setattr(reference, "_REFERENCES_AT_A_TIME", 7)
    pieces = follow(series(values))
    rolling_baseline._follow.cache_clear()
    np.testing.assert_array_equal(pieces.cusum, whole.cusum)
    np.testing.assert_array_equal(pieces.level, whole.level)


def cost_of_following(steps: int) -> tuple[int, int]:
    """Calls of functions, and the most bytes held at a time, for a window of that length that was not seen before."""
    window, calls = series(healthy_loss(steps, seed=steps)), 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    tracemalloc.start()
    sys.setprofile(count)
    try:
        follow(window)
    finally:
        sys.setprofile(None)
        held = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return calls, held


def test_a_window_costs_in_proportion_to_its_length() -> None:
    short, long = cost_of_following(8192), cost_of_following(32768)
    assert 1000 < short[0] < long[0] < 5 * short[0]
    assert short[1] < long[1] < 5 * short[1]


def test_a_window_that_slid_along_is_followed_as_if_it_were_new() -> None:
    values = np.random.default_rng(3).standard_t(4, 5000)
    values[2600:2700] += 5.0
    other = np.random.default_rng(4).standard_normal(5000)
    series = [Series(np.arange(1, 5001), signal) for signal in (values, other)]
    for last in range(300, 5000, 16):
        window = slice(max(0, last - 2048), last)
        for one in series:
            cut = Series(one.steps[window], one.values[window])
            slid = follow(cut)
            if last % 400 < 16:
                rolling_baseline._KNOWN.clear()
                rolling_baseline._follow.cache_clear()
                fresh = follow(cut)
                for name in ("z", "cusum", "alarm", "onset", "level", "scale"):
                    assert np.array_equal(getattr(slid, name), getattr(fresh, name)), (last, name)


def test_other_values_under_the_same_steps_are_followed_anew() -> None:
    values = np.random.default_rng(3).standard_normal(1000)
    follow(Series(np.arange(1, 1001), values))
    changed = values.copy()
    changed[600] += 1e-9
    found = follow(Series(np.arange(1, 1001), changed))
    rolling_baseline._KNOWN.clear()
    rolling_baseline._follow.cache_clear()
    assert np.array_equal(found.level, follow(Series(np.arange(1, 1001), changed)).level)
