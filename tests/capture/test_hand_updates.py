"""Updates by hand without ``watch.update()``: recorded and guarded once their pattern is known, else reported."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from loops_by_hand import (
    RATE,
    Plan,
    Weights,
    accumulation,
    by_gradients,
    clipped_after_update,
    clipped_before_backward,
    irregular,
    language_model,
    momentum,
    net,
    plain,
    two_models,
    with_averages,
)

import steadytrain
from scripts import call, run_script
from steadytrain.capture.step.run_stopped import RunStopped
from steadytrain.storage.run_folder import Run, open_run

Loop = Callable[[Plan], None]
RECORDED = (plain, language_model, momentum, accumulation, two_models, with_averages)
UNSEEN = 2
"""Updates before the pattern is known."""

REPORTED = "no torch.optim optimizer made this update"


def trained(loop: Loop, plan: Plan) -> Weights:
    torch.manual_seed(1)
    loop(plan)
    return plan.weights


def watched(loop: Loop, plan: Plan, folder: Path) -> Run:
    with steadytrain.watch(runs_dir=folder, name="run"):
        trained(loop, plan)
    return open_run(folder / "run")


def same(one: Weights, other: Weights) -> bool:
    return len(one) == len(other) and all(
        torch.equal(left, right)
        for ours, theirs in zip(one, other, strict=True)
        for left, right in zip(ours, theirs, strict=True)
    )


@pytest.mark.parametrize("loop", RECORDED)
def test_is_recorded_and_unchanged(loop: Loop, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    expected, plan = trained(loop, Plan()), Plan()
    run = watched(loop, plan, tmp_path)
    assert same(expected, plan.weights)
    window = run.scalars()
    assert window.steps.tolist() == list(range(UNSEEN + 1, plan.steps + 1))
    assert window.present["loss"].all()
    assert window.present["gradient_norm"].all()
    told = capsys.readouterr().err
    assert REPORTED not in told
    assert "warning" not in told


@pytest.mark.parametrize("loop", RECORDED)
def test_is_refused_a_bad_update(loop: Loop, tmp_path: Path) -> None:
    bad = 7
    expected, plan = trained(loop, Plan(steps=bad - 1)), Plan(bad=bad)
    with pytest.raises(RunStopped, match=f"refused the update of step {bad}"):
        watched(loop, plan, tmp_path)
    assert same(expected, plan.weights)


def test_the_weights_are_untouched_where_it_stopped(tmp_path: Path) -> None:
    model = net()

    def train(steps: int, bad: int) -> None:
        torch.manual_seed(1)
        for step in range(1, steps + 1):
            batch = torch.randn(6, 8)
            batch[0, 0] = float("nan") if step == bad else 0.0
            model.zero_grad()
            model(batch).pow(2).mean().backward()
            for parameter in model.parameters():
                parameter.data.add_(parameter.grad, alpha=-RATE)

    with pytest.raises(RunStopped), steadytrain.watch(runs_dir=tmp_path, name="run"):
        train(9, 6)
    stopped = [one.detach().clone() for one in model.parameters()]
    model = net()
    train(5, 0)
    assert all(torch.equal(one, other) for one, other in zip(stopped, model.parameters(), strict=True))


@pytest.mark.parametrize("loop", [by_gradients, irregular])
def test_what_has_no_pattern_is_reported_once(loop: Loop, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    expected, plan = trained(loop, Plan()), Plan()
    with steadytrain.watch(runs_dir=tmp_path, name="run"):
        trained(loop, plan)
    assert same(expected, plan.weights)
    told = capsys.readouterr().err
    assert told.count(REPORTED) == 1
    assert "loops_by_hand.py" in told


def test_a_pattern_that_changes_is_learned_anew_and_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def loop(plan: Plan) -> None:
        model = net()
        for step in range(1, plan.steps + 1):
            for _ in range(1 if step < 6 else 2):
                model(plan.batch(step, 6, 8)).pow(2).mean().backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter -= RATE * parameter.grad
            model.zero_grad()
            plan.end(step, model)

    expected, plan = trained(loop, Plan()), Plan()
    run = watched(loop, plan, tmp_path)
    assert same(expected, plan.weights)
    assert run.scalars().steps.tolist() == [3, 4, 5, 6, 7, 8, 9, 10]
    told = capsys.readouterr().err
    assert told.count("came after other backward passes than those before it") == 1
    assert "no longer follow one pattern" not in told


def test_gradients_that_the_script_discards_are_no_step(tmp_path: Path) -> None:
    def loop(plan: Plan) -> None:
        model = net()
        for step in range(1, plan.steps + 1):
            model.zero_grad()
            model(plan.batch(step, 6, 8)).pow(2).mean().backward()
            if step % 5:
                for parameter in model.parameters():
                    parameter.data.add_(parameter.grad, alpha=-RATE)
            plan.end(step, model)

    expected, plan = trained(loop, Plan()), Plan()
    run = watched(loop, plan, tmp_path)
    assert same(expected, plan.weights)
    assert run.scalars().steps.tolist() == list(range(UNSEEN + 1, 11))
    assert len(run.facts["notes"]) == 1


def test_the_next_model_on_the_same_lines_is_learned_anew(tmp_path: Path) -> None:
    def loop(plan: Plan) -> None:
        for _ in range(2):
            plain(plan)

    expected, plan = trained(loop, Plan(steps=6)), Plan(steps=6)
    run = watched(loop, plan, tmp_path)
    assert same(expected, plan.weights)
    assert {name: run.scalars(name).steps.tolist() for name in run.streams()} == {
        "main": [3, 4, 5, 6],
        "optimizer-2": [3, 4, 5, 6],
    }


def test_a_marked_update_has_priority(tmp_path: Path) -> None:
    model = net()
    with steadytrain.watch(model, runs_dir=tmp_path, name="run") as watch:
        for _ in range(6):
            model.zero_grad()
            model(torch.randn(6, 8)).pow(2).mean().backward()
            with watch.update(learning_rate=RATE), torch.no_grad():
                for parameter in model.parameters():
                    parameter -= RATE * parameter.grad
    run = open_run(tmp_path / "run")
    assert run.scalars().steps.tolist() == [1, 2, 3, 4, 5, 6]
    assert run.facts["notes"] == []


@pytest.mark.parametrize("loop", [clipped_before_backward, clipped_after_update])
def test_a_clip_without_an_effect_is_named(loop: Loop, tmp_path: Path) -> None:
    run = watched(loop, Plan(steps=40), tmp_path)
    assert "clipped-after-step" in {symptom.name for symptom in run.symptoms}


def test_clipping_at_its_place_is_no_symptom(tmp_path: Path) -> None:
    run = watched(language_model, Plan(steps=40), tmp_path)
    assert "clipped-after-step" not in {symptom.name for symptom in run.symptoms}


def test_the_last_lines_count_every_step(tmp_path: Path) -> None:
    source = """
        import torch
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 1)
        for step in range(60):
            model.zero_grad()
            model(torch.randn(8, 4)).pow(2).mean().backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter -= 0.01 * parameter.grad
        """
    ended = run_script(tmp_path, source)
    assert "60 steps seen, 58 recorded" in ended.told


@pytest.mark.slow
def test_a_replay_is_exact_or_says_why_not(tmp_path: Path) -> None:
    source = """
        import torch
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
        moments = {}
        for step in range(20):
            batch = torch.randn(8, 8)
            if step == 15:
                batch[0, 0] = float("inf")
            model.zero_grad()
            model(batch).pow(2).mean().backward()
            for name, parameter in model.named_parameters():
                moments[name] = 0.9 * moments.get(name, 0) + parameter.grad
                parameter.data.add_(moments[name], alpha=-0.05 * 0.9 ** step)
        """
    ended = run_script(tmp_path, source)
    assert "STOPPED before the update of step 16" in ended.told
    bundle = ended.run_dir / "incidents" / "step-000016"
    replayed = call("replay", bundle, folder=tmp_path)
    assert "13 of 13 steps, to the last bit" in replayed.stdout, replayed.stdout


@pytest.mark.slow
def test_a_trial_of_the_rate_says_whose_number_it_is(tmp_path: Path) -> None:
    source = """
        import torch
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
        for step in range(40):
            batch = torch.randn(8, 8)
            model.zero_grad()
            (model(batch) - batch[:, :1]).pow(2).mean().backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter -= 8.0 * parameter.grad
        """
    ended = run_script(tmp_path, source)
    (bundle,) = ended.run_dir.glob("incidents/step-*")
    tried = " ".join(call("diagnose", bundle, "--all", folder=tmp_path).stdout.split())
    assert "the learning rate is the script's own number: it updates by hand" in tried
    assert "TypeError" not in tried


@pytest.mark.slow
def test_a_rate_that_no_snapshot_has_is_named_where_a_replay_differs(tmp_path: Path) -> None:
    source = """
        import time, torch
        torch.manual_seed(0)
        model = torch.nn.Linear(8, 1)
        rate = 1e-3 * (1 + time.time() % 1)
        for step in range(12):
            batch = torch.randn(8, 8)
            if step == 9:
                batch[0, 0] = float("inf")
            model.zero_grad()
            model(batch).pow(2).mean().backward()
            for parameter in model.parameters():
                parameter.data.add_(parameter.grad, alpha=-rate)
        """
    bundle = run_script(tmp_path, source).run_dir / "incidents" / "step-000010"
    told = " ".join(call("replay", bundle, folder=tmp_path).stdout.split())
    assert "not exact" in told
    assert "a momentum or a rate that it keeps in its own variables is in no snapshot" in told
