"""What is measured in which steps: the cadences of the levels, near a symptom, and at an incident."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import steadytrain
from steadytrain.capture.hooks.fail_open import Guard
from steadytrain.capture.step.run_stopped import RunStopped
from steadytrain.capture.tensors.measurement_schedule import MeasurementSchedule
from steadytrain.core.errors import UsageError
from steadytrain.core.levels import (
    EXTRA_SHARE_MAX,
    EXTRA_STEPS,
    HINT_EVERY,
    LEVELS,
    NEAR_STEPS,
    NEAR_STEPS_SHARE_MAX,
    NEAR_WHOLE,
    Level,
    find_level,
)
from steadytrain.core.model import Reading, Symptom
from steadytrain.storage.run_folder import Run, open_run

EVERY_50 = LEVELS["standard"]
EVERY_8 = Level("every 8", weights_every=8, tensors_every=8, modules_every=8, histograms_every=16, machine_every_s=60.0)


def train(runs_dir: Path, level: str, steps: int, *, bad_step: int = 0) -> Run:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    with steadytrain.watch(model, optimizer, runs_dir=runs_dir, name="run", level=level, to=("none",)):
        for step in range(1, steps + 1):
            optimizer.zero_grad()
            loss = model(torch.randn(5, 4)).square().mean()
            (loss * math.nan if step == bad_step else loss).backward()
            optimizer.step()
    return open_run(runs_dir / "run")


def steps_of(run: Run, table: str) -> list[int]:
    return [] if table not in run.tables("main") else run.table(table).steps.tolist()


def test_light_looks_at_every_gradient_and_at_nothing_else(tmp_path: Path) -> None:
    run = train(tmp_path, "light", 60)
    assert steps_of(run, "gradients") == list(range(1, 61))
    assert steps_of(run, "tensors") == steps_of(run, "modules") == steps_of(run, "histograms") == []


@pytest.mark.long
def test_standard_measures_a_young_run_every_16_steps_then_every_32_and_every_50(tmp_path: Path) -> None:
    run = train(tmp_path, "standard", 601)
    young = [*range(16, 257, 16), *range(288, 513, 32), 550, 600]
    assert steps_of(run, "gradients") == list(range(1, 602))
    assert steps_of(run, "tensors") == [1, *young]
    assert steps_of(run, "modules") == [2, *young]
    assert run.table("modules").rows == ("", "0", "1", "2")
    weighed = run.window().present["parameter_norm"]
    assert (np.flatnonzero(weighed) + 1).tolist() == [1, *young]


def test_full_measures_all_every_8_steps_and_histograms_of_all_kinds_together(tmp_path: Path) -> None:
    run = train(tmp_path, "full", 100)
    assert steps_of(run, "tensors") == [1, *range(8, 101, 8)]
    assert steps_of(run, "modules") == [2, *range(8, 101, 8)]
    histograms = run.table("histograms")
    assert histograms.steps.tolist() == [1, 80]
    last = dict(zip(histograms.rows, histograms.values[-1], strict=True))
    assert {row.partition(":")[0] for row in last} == {"gradient", "gradient+", "weight", "weight+", "activation"}
    assert all(row.sum() == pytest.approx(1.0, abs=1e-5) for row in last.values())


def test_what_is_recorded_of_an_update_is_what_the_optimizer_did(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 2, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    updates = []
    with steadytrain.watch(model, optimizer, runs_dir=tmp_path, name="run", level="full", to=("none",)):
        for step in range(1, 17):
            optimizer.zero_grad()
            model(torch.randn(5, 4)).square().mean().backward()
            before = model.weight.detach().clone()
            optimizer.step()
            if step in (1, 8, 16):
                updates.append(float((model.weight.detach() - before).double().norm()))
    series = open_run(tmp_path / "run").table("tensors").series("weight", "update_norm")
    assert series.values == pytest.approx(updates, rel=1e-5)


def test_at_an_incident_gradients_are_measured_and_no_update_is_claimed(tmp_path: Path) -> None:
    with pytest.raises(RunStopped):
        train(tmp_path, "standard", 10, bad_step=7)
    tensors = open_run(tmp_path / "run").table("tensors")
    assert tensors.steps.tolist() == [1, 7]
    last = dict(zip(tensors.columns, tensors.values[-1].T, strict=True))
    assert (last["gradient_nonfinite"] > 0).all()
    assert (last["weight_nonfinite"] == 0).all()
    assert np.isnan(last["update_norm"]).all()
    assert np.isnan(last["unchanged_share"]).all()


def instruments(level: Level, recorded: list[tuple[int, Reading]]) -> MeasurementSchedule:
    return MeasurementSchedule(
        level,
        None,
        Guard(pytest.fail),
        lambda step, reading: recorded.append((step, reading)),
        pytest.fail,
        lambda name, value: None,
        lambda classes: None,
    )


def symptom(step: int, *, severity: str = "warning") -> Symptom:
    return Symptom("loss-spike", severity, step, step, "a spike")  # type: ignore[arg-type]


def test_after_a_symptom_every_step_is_measured_for_a_while() -> None:
    made = instruments(EVERY_8, [])
    assert not made.weighs(1001)
    made.raised([symptom(1000)], 1000)
    whole, later = range(1001, 1001 + NEAR_WHOLE), range(1001 + NEAR_WHOLE, 1001 + NEAR_STEPS)
    assert all(made.weighs(step) for step in whole)
    assert [step for step in later if made.weighs(step)] == [step for step in later if step % HINT_EVERY == 0]
    assert not made.weighs(1004 + NEAR_STEPS)
    made.raised([symptom(1000)], 1100)  # it is known
    assert not made.weighs(1101)


def seen(made: MeasurementSchedule, steps: range, norms: np.ndarray | None = None, rate: float = 1e-3) -> None:
    for step in steps:
        made.saw(step, (np.ones(4) if norms is None else norms).astype(np.float32), rate)


def test_a_note_makes_every_fourth_step_be_measured_for_a_while() -> None:
    made = instruments(EVERY_8, [])
    made.raised([symptom(1000, severity="note")], 1000)
    assert [step for step in range(1001, 1050) if made.weighs(step)] == [*range(1004, 1033, 4), 1040, 1048]


def test_what_the_script_does_is_no_reason_to_measure_more() -> None:
    made = instruments(EVERY_8, [])
    made.raised([replace(symptom(1000), signals=("script.value",))], 1000)
    assert [step for step in range(1001, 1050) if made.weighs(step)] == list(range(1008, 1050, 8))


def test_a_rate_that_jumps_is_a_hint() -> None:
    made = instruments(EVERY_50, [])
    seen(made, range(1, 1001))
    seen(made, range(1001, 1002), rate=3e-3)
    assert [step for step in range(1001, 1060) if made.weighs(step)] == [*range(1004, 1034, 4), 1050]


def test_a_tensor_whose_gradient_leaves_the_others_is_a_hint() -> None:
    made = instruments(EVERY_50, [])
    seen(made, range(1, 1001))
    seen(made, range(1001, 1005), norms=np.array([1.0, 1.0, 1.0, 0.0]))
    assert made.weighs(1008)


def test_what_all_tensors_share_is_no_hint() -> None:
    made = instruments(EVERY_50, [])
    seen(made, range(1, 1001))
    seen(made, range(1001, 1005), norms=np.full(4, 50.0))
    assert not made.weighs(1008)


def test_a_loaded_state_makes_the_run_young_again() -> None:
    made = instruments(EVERY_50, [])
    seen(made, range(1, 1001))
    made.renewed(1000)
    assert [step for step in range(1001, 1040) if made.weighs(step)] == [1008, 1024]


def test_a_resume_is_young() -> None:
    made = instruments(EVERY_50, [])
    seen(made, range(5001, 5003))
    assert [step for step in range(5003, 5040) if made.weighs(step)] == [5008, 5024]


@pytest.mark.long
def test_hints_are_bounded(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with steadytrain.watch(model, optimizer, runs_dir=tmp_path, name="run", to=("none",)) as watch:
        for step in range(1, 1001):
            optimizer.zero_grad()
            model(torch.ones(2, 3)).mean().backward()
            optimizer.step()
            stream = watch._watcher.streams[0]
            assert stream.instruments is not None
            stream.instruments.raised([symptom(step, severity="note")], step)
    measured = len(steps_of(open_run(tmp_path / "run"), "tensors"))
    bound = EXTRA_STEPS + EXTRA_SHARE_MAX * 1000 + 1000 / 50 + 2
    assert 60 < measured <= bound + NEAR_STEPS  # the rate of zero is a warning


@pytest.mark.long
def test_a_run_that_stays_sick_is_not_measured_in_every_step_for_ever(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    near = 0
    with steadytrain.watch(model, optimizer, runs_dir=tmp_path, name="run", to=("none",)) as watch:
        stream = None
        for step in range(1, 1001):
            optimizer.zero_grad()
            model(torch.ones(2, 3)).mean().backward()
            optimizer.step()
            stream = stream or watch._watcher.streams[0]
            assert stream.instruments is not None
            stream.instruments.raised([symptom(step)], step)
    near = len(steps_of(open_run(tmp_path / "run"), "tensors"))
    least = EXTRA_STEPS + EXTRA_SHARE_MAX * 1000 + 1000 / 50 + 2
    assert near <= NEAR_STEPS + NEAR_STEPS_SHARE_MAX * 1000 + least


def test_an_unknown_level_is_said() -> None:
    with pytest.raises(UsageError, match="'lots': no such level; one of light, standard, full"):
        find_level("lots")
    assert set(LEVELS) == {"light", "standard", "full"}
