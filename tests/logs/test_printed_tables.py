"""Tables among the lines that a script prints, and losses that are logged only in parts."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from logs.reading import metric, read_one, signal, text
from steadytrain.api.log_analysis import analyze

RULE = "-" * 40
BAR = "100%|##########| 120/120 [00:31<00:00,  3.85it/s]"


def stable_baselines(rewards: list[float]) -> str:
    frames = [
        [
            RULE,
            "| rollout/                |             |",
            f"|    ep_rew_mean          | {reward:.3g}        |",
            "| time/                   |             |",
            f"|    iterations           | {number}           |",
            f"|    total_timesteps      | {2048 * number}        |",
            "| train/                  |             |",
            f"|    loss                 | {20 + number % 3}        |",
            "|    policy_gradient_loss | -0.015      |",
            f"|    value_loss           | {30 + number % 5}       |",
            RULE,
        ]
        for number, reward in enumerate(rewards, 1)
    ]
    return "\n".join(line for frame in frames for line in frame) + "\n"


def yolo(losses: list[float], maps: list[float]) -> str:
    lines = []
    for epoch, (loss, score) in enumerate(zip(losses, maps, strict=True), 1):
        row = f"      {epoch}/100      4.52G     {loss:.4g}     {2 * loss:.4g}     1.5         37        640: "
        lines += [
            "      Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size",
            f"{row}  1%|          | 1/120 [00:31<00:00,  3.85it/s]\r{row}{BAR}",
            f"                 Class     Images  Instances      Box(P          R      mAP50  mAP50-95): {BAR}",
            f"                   all        500       2400      0.5      0.4      {score:.3g}      {score / 2:.3g}",
            "",
        ]
    return "\n".join(lines) + "\n"


def test_a_frame_of_names_and_values_is_a_row(tmp_path: Path) -> None:
    log = read_one(text(tmp_path, "ppo.log", stable_baselines([20.0, 30.0, 40.0, 50.0, 60.0])))
    assert signal(log, "loss") == {2048: 21.0, 4096: 22.0, 6144: 20.0, 8192: 21.0, 10240: 22.0}
    assert metric(log, "ep_rew_mean")[10240] == 60.0


def test_the_return_of_a_frame_is_judged(tmp_path: Path) -> None:
    rise = (20 + 160 * (1 - np.exp(-np.arange(20) / 6))).tolist()
    (healthy,) = analyze(text(tmp_path, "up.log", stable_baselines(rise))).runs
    (sick,) = analyze(text(tmp_path, "down.log", stable_baselines([*rise, *[15.0] * 10]))).runs
    assert healthy.judgement.health == "healthy"
    assert [symptom.name for symptom in sick.judgement.symptoms] == ["metric-collapse"]


def test_epochs_of_yolo_are_read_with_the_sum_of_their_losses(tmp_path: Path) -> None:
    log = read_one(text(tmp_path, "yolo.log", yolo([2.0, 1.5, math.nan], [0.1, 0.2, 0.0])))
    assert signal(log, "loss")[1] == 7.5
    assert signal(log, "loss")[2] == 6.0
    assert math.isnan(signal(log, "loss")[3])
    assert metric(log, "val/map_50") == {1: 0.1, 2: 0.2, 3: 0.0}
    assert any("'total loss' is the sum of box_loss, cls_loss, dfl_loss" in note for note in log.notes)


@pytest.mark.parametrize("bar", ["|", "│"])
def test_a_table_of_bars_is_read(tmp_path: Path, bar: str) -> None:
    lines = ["| Step | Training Loss | Validation Loss |", "|------|------:|:------|", "| 100 | 1.1 | 1.0 |"]
    lines += ["| 200 | 0.9 | No log |", "| 300 | nan | 1.3 |"]
    log = read_one(text(tmp_path, "card.md", "the results\n" + "\n".join(lines).replace("|", bar) + "\n"))
    losses = signal(log, "loss")
    assert (losses[100], losses[200]) == (1.1, 0.9)
    assert math.isnan(losses[300])
    assert metric(log, "Validation Loss") == {100: 1.0, 300: 1.3}


def test_lines_between_bars_that_name_their_numbers_stay_lines(tmp_path: Path) -> None:
    lines = "".join(f"| epoch 1 | step {step} | loss {3.0 - step / 100} |\n" for step in (10, 20, 30))
    assert signal(read_one(text(tmp_path, "lm.log", lines)), "loss") == {10: 2.9, 20: 2.8, 30: 2.7}


def test_the_losses_of_two_players_measure_no_progress(tmp_path: Path) -> None:
    table = "step,g_loss,d_loss\n" + "".join(f"{10 * row},{1 + row % 7},{2 - row % 2}\n" for row in range(40))
    log = read_one(text(tmp_path, "gan.csv", table))
    assert log.window.facts["loss_may_rise"] == 1.0
    assert signal(log, "loss")[20] == 5.0
    noise = np.exp(0.6 * np.random.default_rng(3).standard_normal(200))
    lines = "".join(f"[{n // 40}/5][{n % 40}/40] Loss_D: {1.2:.4f} Loss_G: {v:.4f}\n" for n, v in enumerate(noise))
    (run,) = analyze(text(tmp_path, "gan.log", lines)).runs
    assert run.judgement.health in ("healthy", "unknown")
    assert run.log.window.steps.tolist() == list(range(200))


def test_an_episode_counts_where_nothing_else_does(tmp_path: Path) -> None:
    lines = "".join(f"Episode {50 * n}\tAverage Score: {20.0 * n:.2f}\n" for n in range(1, 8))
    log = read_one(text(tmp_path, "dqn.log", lines))
    assert metric(log, "Average Score") == {50 * n: 20.0 * n for n in range(1, 8)}
