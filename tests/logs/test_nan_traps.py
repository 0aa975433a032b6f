"""What NaN does to other tools, from the file of a log to the verdict: it resets their counters, poisons their means,
hides behind their filters, and takes steps with it. Here it does none of this.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from reading import read_one, text

from steadytrain.core.model import Symptom
from steadytrain.grouping import Judgement, catalog, judge

STEPS = np.arange(1, 1501)
HEALTHY = 2.0 + 2.0 * np.exp(-STEPS / 150) + np.random.default_rng(0).normal(0.0, 0.02, len(STEPS))


def judged(folder: Path, loss: np.ndarray, gradient_norm: np.ndarray | None = None) -> Judgement:
    """The verdict on a CSV of ``loss``."""
    norms = gradient_norm if gradient_norm is not None else 1.0 + 0.05 * np.sin(STEPS)
    rows = (f"{step},{one!r},{norm!r}\n" for step, one, norm in zip(STEPS, loss.tolist(), norms.tolist(), strict=True))
    log = read_one(text(folder, "log.csv", "step,loss,grad_norm\n" + "".join(rows)))
    return judge(log.window, catalog.detectors())


def named(judgement: Judgement, name: str) -> Symptom:
    return next(symptom for symptom in judgement.symptoms if symptom.name == name)


def test_a_nan_never_resets_a_counter(tmp_path: Path) -> None:
    """A rise that lasts is seen no later for a NaN in every seventh of its steps."""
    rising = HEALTHY + np.maximum(0, STEPS - 900) * 0.02
    broken = np.where((STEPS > 900) & (STEPS % 7 == 0), np.nan, rising)
    whole, torn = named(judged(tmp_path, rising), "divergence"), named(judged(tmp_path, broken), "divergence")
    assert whole.severity == torn.severity == "critical"
    assert abs(torn.first_step - whole.first_step) <= 7


def test_a_nan_never_enters_a_mean(tmp_path: Path) -> None:
    """A spike after some NaN is measured against the level of the finite steps before it."""
    spiked = HEALTHY + 2.0 * (STEPS == 1200)
    broken = np.where(np.isin(STEPS, [1000, 1100, 1101, 1199]), np.nan, spiked)
    broken[1149] = np.inf
    whole, torn = named(judged(tmp_path, spiked), "loss-spike"), named(judged(tmp_path, broken), "loss-spike")
    assert (torn.first_step, torn.severity) == (whole.first_step, whole.severity) == (1200, "warning")
    level, torn_level = whole.numbers["reference_level"], torn.numbers["reference_level"]
    assert isinstance(level, float)
    assert isinstance(torn_level, float)
    assert abs(torn_level - level) < 0.01


def test_a_nan_never_hides_behind_a_filter(tmp_path: Path) -> None:
    """Trainers log a NaN as 0.0, or as the mean of the steps before; the gradient norm beside it says what it was."""
    norms = np.where(STEPS >= 1300, np.nan, 1.0)
    hidden = judged(tmp_path, np.where(STEPS >= 1300, 0.0, HEALTHY), norms)
    loss = named(hidden, "nonfinite-loss")
    assert (hidden.health, loss.first_step, loss.last_step) == ("sick", 1300, 1500)
    assert "a hidden NaN" in loss.message
    averaged = judged(tmp_path, np.where(STEPS >= 1300, HEALTHY[1200], HEALTHY), norms)
    assert averaged.health == "sick"
    assert named(averaged, "nonfinite-gradient").first_step == 1300


def test_a_nan_never_makes_128_steps_be_skipped(tmp_path: Path) -> None:
    """What happens right after a NaN is seen, and only the NaN itself is called one."""
    for spike in (1201, 1220, 1327):
        loss = HEALTHY + 2.0 * (STEPS == spike)  # noqa: SIM300 - an array against a number
        loss[1199] = np.nan
        found = judged(tmp_path, loss)
        nan = named(found, "nonfinite-loss")
        assert (nan.first_step, nan.last_step) == (1200, 1200)
        assert named(found, "loss-spike").first_step == spike


def test_a_later_row_of_the_same_step_does_not_hide_a_nan(tmp_path: Path) -> None:
    """Ranks and micro-batches write a row each; the last one may be finite."""
    rows = [{"step": 1, "loss": 2.0}, {"step": 2, "loss": float("nan")}, {"step": 2, "loss": 1.9}]
    rows += [{"step": 2, "val_loss": float("inf")}, {"step": 2, "val_loss": 3.0}, {"step": 3, "loss": 1.8}]
    window = read_one(text(tmp_path, "log.jsonl", "\n".join(map(json.dumps, rows)))).window
    assert np.isnan(window.series("loss").values).tolist() == [False, True, False]
    assert window.metrics["val_loss"].values.tolist() == [np.inf]


def test_a_nan_whose_cell_was_left_empty_is_pointed_at(tmp_path: Path) -> None:
    """As pandas writes it. Nothing but the missing values tells of it."""
    rows = "".join(f"{step},{2.5 if step < 200 else ''},1e-4\n" for step in range(1, 301))
    log = read_one(text(tmp_path, "log.csv", "step,loss,lr\n" + rows))
    (note,) = log.notes
    assert note.startswith("No loss after step 199, though the log continues to step 300")
    sparse = "".join(f"{step},{2.5 if step % 50 == 0 else ''},1e-4\n" for step in range(1, 340))
    assert read_one(text(tmp_path, "sparse.csv", "step,loss,lr\n" + sparse)).notes == ()
