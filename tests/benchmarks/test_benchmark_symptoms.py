"""The benchmark of symptoms: the rules of others are what they publish, its noise is what it says, its table comes out.

What it measures is no test.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def _trials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def normal(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(count)


def fired(rule: str, values: np.ndarray) -> list[int]:
    from trials.rules import RULES

    found: list[int] = np.flatnonzero(RULES[rule](np.asarray(values, np.float64))).tolist()
    return found


def test_olmo_core_fires_on_either_side_of_six_deviations_and_hides_its_own_outliers() -> None:
    values = normal(400)
    mean, deviation = values[172:300].mean(), values[172:300].std(ddof=1)
    for side in (1.0, -1.0):
        values[300] = mean + side * 6.01 * deviation
        assert fired("OLMo-core skip step", values) == [300]
        values[300] = mean + side * 5.99 * deviation
        assert fired("OLMo-core skip step", values) == []
    values[300] = mean + 100.0 * deviation
    values[310] = mean + 10.0 * deviation
    assert fired("OLMo-core skip step", values) == [300]  # the second lies within the spread that the first made
    early = normal(400)
    early[62] = 50.0
    assert fired("OLMo-core skip step", early) == []  # the 63rd value: too early by one
    early[62], early[63] = 0.0, 50.0
    assert fired("OLMo-core skip step", early) == [63]


def test_llm_foundry_waits_for_the_fifth_double_in_a_row() -> None:
    values = np.full(300, 2.0)
    values[150:154] = 4.5
    assert fired("llm-foundry KillLossSpike", values) == []
    values[150:156] = 4.5
    assert fired("llm-foundry KillLossSpike", values) == [154, 155]
    values = np.full(300, 8.0)
    values[120:] = 10.5
    assert fired("llm-foundry KillLossSpike", values)[0] == 199  # the 200th step; half of the window since the 170th


def test_lightning_asks_for_three_times_the_mean_of_ten_and_leaves_out_what_fired() -> None:
    values = np.full(40, 2.0)
    values[20] = 5.99
    assert fired("Lightning SpikeDetection", values) == []
    values[20] = 6.0
    assert fired("Lightning SpikeDetection", values) == [20]
    values[20:30] = 6.0
    assert fired("Lightning SpikeDetection", values) == list(range(20, 30))


def test_zclip_keeps_running_averages_of_what_it_let_through() -> None:
    values = np.concatenate([np.tile([1.0, 3.0], 12), [2.0], [2.0 + 2.49 * 0.98]])
    assert values[:25].std() == pytest.approx(0.98, abs=0.001)
    assert fired("ZClip", values) == []
    values[25] = 2.0 + 2.51 * 0.98
    assert fired("ZClip", values) == [25]
    # An outlier of z = 100 enters as 2.5 * 2.5 / 100 deviations: the next of 3 deviations fires as well.
    assert fired("ZClip", np.concatenate([values[:25], [100.0], [2.0 + 3.0 * 0.98]])) == [25, 26]


def test_megatron_takes_ten_times_the_highest_of_the_first_hundred() -> None:
    values = np.full(300, 2.0)
    values[50], values[200] = 11.0, 109.0
    assert fired("Megatron rerun", values) == []
    values[200] = 110.0
    assert fired("Megatron rerun", values) == [200]


def test_trainscope_sums_robust_distances_and_begins_anew() -> None:
    values = np.tile([0.0, 1.0, 2.0, 3.0, 4.0], 60)
    size = 1.4826  # the median distance of these from their median, 2, is 1
    assert fired("trainscope", values) == []
    values[250] = 2.0 + 7.1 * size
    assert fired("trainscope", values) == [250]
    values[250:252] = 2.0 + 4.5 * size, 2.0 + 4.5 * size
    assert fired("trainscope", values) == [251]  # 3.5 and 3.5, less than 6 apart
    values[250:252] = 2.0 - 8.0 * size, 2.0
    assert fired("trainscope", values) == [250]  # a fall as well
    values = np.tile([0.0, 1.0, 2.0, 3.0, 4.0], 60)
    values[28] = 100.0
    assert fired("trainscope", values) == []  # fewer than 30 before it


def test_what_fires_near_each_other_is_one_episode() -> None:
    from trials.rules import episodes

    fires = np.zeros(100, np.bool_)
    assert episodes(fires) == 0
    fires[[10, 20, 36, 53]] = True
    assert episodes(fires) == 2


def test_documents_are_as_correlated_as_text_read_in_order() -> None:
    from trials.noise import NOISES

    values = NOISES["documents"](np.random.default_rng(0), 100_000)
    assert values.std() == pytest.approx(1.0, abs=0.03)
    assert float((values[1:] * values[:-1]).mean()) == pytest.approx(0.34, abs=0.03)
    assert float((values[10:] * values[:-10]).mean()) == pytest.approx(0.18, abs=0.03)


def test_a_surrogate_has_the_trend_and_the_noise_of_its_run() -> None:
    from trials.noise import Trace, blocks, surrogate

    noise = normal(3000) * 0.1
    noise[1:] += 0.8 * noise[:-1]
    made = surrogate(Trace("some", 2.0 + 3.0 * np.exp(-np.arange(3000) / 500.0) + noise, np.zeros(0)), 20_000, seed=1)
    loss = made.applied("loss").values
    late = loss[10_000:]
    assert np.mean(loss[:100]) == pytest.approx(2.0 + 3.0 * np.exp(-0.6), abs=0.15)
    assert np.mean(late[-2000:]) == pytest.approx(2.0, abs=0.05)
    assert np.std(late[-2000:]) == pytest.approx(noise.std(), rel=0.15)
    rows = blocks(np.random.default_rng(0), 3000, 20_000)
    joins = np.flatnonzero((np.diff(rows) != 1) & (rows[:-1] != 2999))
    assert (np.diff(joins) >= 50).all()
    assert np.diff(joins).mean() == pytest.approx(125, abs=15)


def test_the_real_run_learns_and_its_gradients_are_right() -> None:
    from trials import real

    data = np.frombuffer(b"the quick brown fox jumps over the lazy dog; " * 200, np.uint8)
    losses = [loss for loss, _ in real.train(data, 300, in_order=False)]
    assert losses[0] == pytest.approx(np.log(256), abs=0.1)
    assert np.mean(losses[-20:]) < 0.5
    draw = np.random.default_rng(0)
    weights = real._initial(draw)
    rows = draw.integers(0, len(data) - real.CONTEXT, real.BATCH)
    batch = data[rows[:, None] + np.arange(real.CONTEXT)], data[rows + real.CONTEXT]
    _, gradients = real._loss(weights, *batch)
    for name, weight in weights.items():
        place = np.unravel_index(np.abs(gradients[name]).argmax(), weight.shape)
        moved = weight.copy()
        moved[place] += 1e-5
        up, _ = real._loss({**weights, name: moved}, *batch)
        moved[place] -= 2e-5
        down, _ = real._loss({**weights, name: moved}, *batch)
        assert (up - down) / 2e-5 == pytest.approx(gradients[name][place], rel=1e-4)


@pytest.mark.slow
@pytest.mark.long
def test_a_quick_run_prints_every_table(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARKS / "symptoms.py"), "--quick"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(tmp_path)}
    found = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, check=False)
    assert found.returncode == 0, found.stderr
    for title in ("Cost", "False alarms", "False alarms of the rules of others", "Detection"):
        assert f"\n## {title}\n" in found.stdout
    assert found.stdout.count("\n| OLMo-core skip step |") == 4
    assert found.stdout.count("\n| steadytrain, live window |") == 3
    assert "\n| real, in order |" in found.stdout
    assert "bounds the rate at 3/N" in found.stdout
