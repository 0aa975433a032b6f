"""A long run of very short steps is recorded in bursts. It stays bit-identical, and is guarded while it rests."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import steadytrain
from resting_loops import FIRST_REST, Ticks, network, pace, resting, train
from steadytrain.capture.settings import Settings
from steadytrain.capture.step.resting_streams import UsualLoss
from steadytrain.capture.step.watcher import Watcher
from steadytrain.core.levels import LEVELS
from steadytrain.detection.run_recorder import recording
from steadytrain.report.circumstances import run_facts
from steadytrain.storage.run_folder import open_run
from steadytrain.storage.tape_files import find_recording

BAD = 110
"""A step in the first rest."""


def bad_loss(step: int, loss: Tensor) -> Tensor:
    return loss * math.nan if step == BAD else loss


def bad_gradient(step: int, loss: Tensor) -> Tensor:
    """The loss is finite, and its gradient is not: the root of zero."""
    return loss + (loss - loss.detach()).sqrt() if step == BAD else loss


def parameters(model: nn.Module) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in model.parameters()]


def same(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(torch.equal(left, right) for left, right in zip(one, other, strict=True))


def test_a_run_that_rests_is_the_same_bit_for_bit_and_its_steps_go_on(tmp_path: Path) -> None:
    bare: list[float] = []
    losses: list[float] = []
    told: list[str] = []
    plain = parameters(train(1000, losses=bare))
    with resting(tmp_path / "run", told, pace=pace()) as watcher:
        ours = parameters(train(1000, losses=losses))
    assert same(plain, ours)
    assert losses == bare
    steps = open_run(tmp_path / "run").scalars().steps.tolist()
    recorded = [step for step, before in zip(steps[1:], steps, strict=False) if step != before + 1]
    assert steps[:95] == list(range(1, 96))
    assert len(recorded) >= 3
    assert all(step % 16 == 1 for step in recorded)  # the bursts begin after a multiple of 16
    assert watcher.streams[0].step == 1000
    assert watcher.recorded_steps == len(steps)
    by_step = open_run(tmp_path / "run").scalars()
    seen = dict(zip(by_step.steps.tolist(), by_step.signals["loss"].tolist(), strict=True))
    assert all(seen[step] == pytest.approx(bare[step - 1], rel=1e-6) for step in seen)


@pytest.mark.long
def test_it_is_said_once_and_stands_in_the_run_folder(tmp_path: Path) -> None:
    told: list[str] = []
    with resting(tmp_path / "run", told, pace=pace()):
        train(1000)
    notes = [text for text in told if "--every-step" in text]
    assert len(notes) == 1
    assert notes[0].startswith("note: a step takes ")
    assert f"from step {FIRST_REST} on steadytrain records 79 steps at a time and rests in between" in notes[0]
    run = open_run(tmp_path / "run")
    assert run.facts["rests"]["steps"] == 1000
    assert run.facts["rests"]["first_step"] == FIRST_REST
    assert run.facts["rests"]["rested"] == 1000 - run.steps
    assert run.facts["rests"]["rests"] >= 3


@pytest.mark.long
@pytest.mark.parametrize("how", ["no pace", "full", "allowance", "long steps"])
def test_a_run_that_may_not_or_need_not_rest_records_every_step(how: str, tmp_path: Path) -> None:
    paces = {
        "no pace": None,
        "full": pace(),
        "allowance": pace(allowance_s=20.0),
        "long steps": pace(step_s_max=1e-4, costly_step_s_max=1e-4),
    }
    level = LEVELS["full" if how == "full" else "standard"]
    settings = Settings(run_dir=tmp_path / "run", run_name="run", level=level, pace=paces[how])
    watcher = Watcher(settings, tell=lambda text: None, record=recording([]))
    train(300)
    watcher.close(ended="finished")
    assert open_run(tmp_path / "run").steps == 300
    assert watcher.recorded_steps is None


def test_the_cost_of_a_run_with_two_optimizers_is_known(tmp_path: Path) -> None:
    with resting(tmp_path / "run", [], pace=pace()):
        models = [network(), network()]
        optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
        for _ in range(20):
            for model, optimizer in zip(models, optimizers, strict=True):
                optimizer.zero_grad()
                model(torch.randn(4, next(model.parameters()).shape[-1])).square().mean().backward()
                optimizer.step()
    cost = open_run(tmp_path / "run").facts["cost"]
    assert cost["recorded_steps"] == 39
    assert 0.0 < cost["own_s"] < cost["run_s"]


def test_a_loss_that_is_not_finite_in_a_resting_step_is_refused_with_its_batch(tmp_path: Path) -> None:
    told: list[str] = []
    before = parameters(train(BAD - 1))
    model = network()
    with pytest.raises(steadytrain.RunStopped), resting(tmp_path / "run", told, pace=pace()):
        train(BAD + 50, model=model, bad=bad_loss)
    assert same(before, parameters(model))
    run = open_run(tmp_path / "run")
    (incident,) = run.open_incidents()
    assert (incident.step, incident.action.what, incident.micro_batches) == (BAD, "refused-update", 1)
    assert f"step {BAD} was not recorded, because the run rested since step {FIRST_REST}" in incident.batch_note
    assert incident.finding.located is not None
    assert incident.finding.located.operation == "aten.mul.Tensor"
    stopped = next(text for text in told if text.startswith("STOPPED"))
    assert "weights and optimizer state are as they were before the step" in stopped
    assert f"not recorded         the run rested since step {FIRST_REST}" in stopped
    assert "--every-step" in stopped
    assert run.scalars().steps.tolist()[-1] == BAD
    assert run.ended == "stopped"


@pytest.mark.parametrize(("factor", "recorded"), [(100.0, True), (1.5, False)])
def test_a_loss_far_above_those_on_record_ends_the_rest(factor: float, recorded: bool, tmp_path: Path) -> None:
    plain = parameters(train(BAD + 8, bad=lambda step, loss: loss * factor if step == BAD else loss))
    with resting(tmp_path / "run", pace=pace()):
        ours = parameters(train(BAD + 8, bad=lambda step, loss: loss * factor if step == BAD else loss))
    assert same(plain, ours)
    steps = open_run(tmp_path / "run").scalars().steps.tolist()
    assert steps[:95] == list(range(1, 96))
    assert steps[95:] == (list(range(BAD, BAD + 9)) if recorded else [])


def test_losses_that_jump_again_and_again_end_few_rests() -> None:
    usual, wakes = UsualLoss(), 0
    losses = np.abs(np.random.default_rng(0).standard_cauchy(20_000))
    assert usual.allows(1e6)  # nothing is known yet
    assert not usual.allows(math.nan)
    assert not usual.allows(-math.inf)
    for start in range(0, len(losses), 200):
        usual.learn(losses[:start])
        wakes += not all(usual.allows(loss) for loss in losses[start : start + 200])
    assert wakes < 8


def test_a_gradient_that_is_not_finite_in_a_resting_step_is_refused(tmp_path: Path) -> None:
    before = parameters(train(BAD - 1))
    model = network()
    with pytest.raises(steadytrain.RunStopped), resting(tmp_path / "run", pace=pace()):
        train(BAD + 50, model=model, bad=bad_gradient)
    assert same(before, parameters(model))
    (incident,) = open_run(tmp_path / "run").open_incidents()
    assert incident.step == BAD
    assert {symptom.name for symptom in incident.symptoms} == {"nonfinite-gradient"}
    assert incident.losses[0] < 10.0


def test_a_gradient_that_no_look_reads_is_named_with_the_steps_in_which_it_may_have_been(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large tensors only: their gradients are not read while the run rests, so the next loss shows the damage."""
    monkeypatch.setattr("steadytrain.capture.step.resting_streams.CHECKED_ELEMENTS_MAX", 0)
    told: list[str] = []
    with pytest.raises(steadytrain.RunStopped), resting(tmp_path / "run", told, pace=pace()):
        train(BAD + 50, bad=bad_gradient)
    (incident,) = open_run(tmp_path / "run").open_incidents()
    assert incident.step == BAD + 1
    stopped = next(text for text in told if text.startswith("STOPPED"))
    assert f"since an update of the steps {FIRST_REST} to {BAD}, which were not recorded" in stopped
    assert "as they were before the step" not in stopped


def test_a_tiny_step_is_guarded_without_its_batch(tmp_path: Path) -> None:
    """Below 0.6 ms a hook on the model would cost too much of the step."""
    told: list[str] = []
    tiny = pace(clock=Ticks(1e-5), rest_s_max=0.0025)
    bare: list[float] = []
    losses: list[float] = []
    train(400, losses=bare)
    with resting(tmp_path / "healthy", pace=tiny) as watcher:
        train(400, losses=losses)
    assert losses == bare
    assert (watcher.recorded_steps or 400) < 300
    before = parameters(train(BAD - 1))
    model = network()
    with pytest.raises(steadytrain.RunStopped), resting(tmp_path / "run", told, pace=tiny):
        train(BAD + 50, model=model, bad=bad_loss)
    assert same(before, parameters(model))
    (incident,) = open_run(tmp_path / "run").open_incidents()
    assert (incident.step, incident.micro_batches) == (BAD, 0)
    assert incident.batch_note.startswith(f"not kept: step {BAD} was not recorded")
    assert "but not its batch and random state" in next(text for text in told if text.startswith("STOPPED"))


@pytest.mark.long
def test_show_tells_how_many_of_the_steps_are_on_record(tmp_path: Path) -> None:
    with resting(tmp_path / "run", pace=pace()):
        train(BAD)
    run = open_run(tmp_path / "run")
    values = {fact.label: fact.value for fact in run_facts(run, run.scalars())}
    assert values["steps"] == f"{FIRST_REST - 1} of {BAD}"


def test_the_policy_observe_freezes_the_step_and_goes_on(tmp_path: Path) -> None:
    with resting(tmp_path / "run", policy="observe", pace=pace()):
        train(BAD + 5, bad=bad_loss)
    run = open_run(tmp_path / "run")
    assert [incident.step for incident in run.open_incidents()] == [BAD]
    assert run.scalars().steps.tolist()[-6:] == list(range(BAD, BAD + 6))  # from here on it records again


def test_a_script_that_raises_for_a_bad_loss_in_a_resting_step_leaves_an_incident(tmp_path: Path) -> None:
    def raising(step: int, loss: Tensor) -> Tensor:
        loss = bad_loss(step, loss)
        if not math.isfinite(loss.item()):
            raise ValueError("the loss is not finite")
        return loss

    told: list[str] = []
    with pytest.raises(ValueError, match="not finite"), resting(tmp_path / "run", told, pace=pace()):
        train(BAD + 50, bad=raising)
    (incident,) = open_run(tmp_path / "run").open_incidents()
    assert (incident.step, incident.micro_batches) == (BAD, 1)
    assert any(text.startswith(f"NO UPDATE at step {BAD}") for text in told)


def test_a_run_that_ends_while_it_rests_counts_its_steps(tmp_path: Path) -> None:
    with resting(tmp_path / "run", pace=pace()) as watcher:
        train(BAD)
    run = open_run(tmp_path / "run")
    assert (run.steps, run.facts["rests"]["steps"], watcher.streams[0].step) == (FIRST_REST - 1, BAD, BAD)
    assert run.ended == "finished"


@pytest.mark.long
def test_a_new_optimizer_ends_a_rest_and_rests_later(tmp_path: Path) -> None:
    with resting(tmp_path / "run", pace=pace()) as watcher:
        train(BAD)
        train(600)
    run = open_run(tmp_path / "run")
    assert run.scalars("main").steps.tolist() == list(range(1, FIRST_REST))
    later = run.scalars("optimizer-2").steps.tolist()
    assert later[:64] == list(range(1, 65))
    assert len(later) < 600
    assert watcher.streams[1].step == 600


@pytest.mark.parametrize("how", ["closure", "scaler"])
def test_closures_and_gradient_scalers_are_recorded_whole(how: str, tmp_path: Path) -> None:
    model = network()
    kind = torch.optim.LBFGS if how == "closure" else torch.optim.SGD
    optimizer: Any = kind(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu")
    inputs = torch.randn(8, 16)
    with resting(tmp_path / "run", pace=pace()):
        for _ in range(200):

            def closure() -> Tensor:
                optimizer.zero_grad()
                loss = model(inputs).square().mean()
                loss.backward()
                return loss

            if how == "closure":
                optimizer.step(closure)
            else:
                optimizer.zero_grad()
                scaler.scale(model(inputs).square().mean()).backward()
                scaler.step(optimizer)
                scaler.update()
    assert open_run(tmp_path / "run").steps == 200


@pytest.mark.long
def test_each_burst_begins_with_a_snapshot_and_a_tape_that_names_the_gap(tmp_path: Path) -> None:
    with resting(tmp_path / "run", pace=pace()):
        train(700)
    found = find_recording(tmp_path / "run")
    steps = open_run(tmp_path / "run").scalars().steps.tolist()
    begins = [step for step, before in zip(steps[1:], steps, strict=False) if step != before + 1]
    assert begins[-1] in found.starts()
    chunk = found.chunk_of(begins[-1] - 1)
    assert chunk is not None
    lead = json.loads(chunk.document.read_text())["steps"][0]
    assert lead["step"] == begins[-1] - 1
    assert "the run rested" in lead["left_out"]
    with pytest.raises(steadytrain.UsageError, match=r"the run rested in between \(--every-step records all\)"):
        found.choose(first=None, until=begins[-1] - 2)


class Broken(dict[int, Any]):
    """Has for every optimizer a parameter whose gradient cannot be read."""

    def get(self, key: int, default: Any = None) -> Any:
        return self

    @property
    def grad(self) -> Tensor:
        raise RuntimeError("planted")


def test_our_own_error_in_a_resting_step_is_reported_and_training_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    with resting(tmp_path / "run", told, pace=pace()) as watcher:
        monkeypatch.setattr(watcher.guard, "report", lambda part, error: told.append(f"{part}: {error}"))

        def planted(step: int, loss: Tensor) -> Tensor:
            if step == FIRST_REST + 5:
                monkeypatch.setattr(watcher.resting._streams, "checked", Broken())
            return loss

        train(BAD, bad=planted)
    assert [text for text in told if "planted" in text] == ["reading a gradient: planted"]
    assert open_run(tmp_path / "run").facts["rests"]["steps"] == BAD


@pytest.mark.long
def test_a_loader_is_counted_while_the_run_rests(tmp_path: Path) -> None:
    data = torch.utils.data.TensorDataset(torch.randn(320, 16))
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with resting(tmp_path / "run", pace=pace(clock=Ticks())):
        for _ in range(60):
            for (inputs,) in torch.utils.data.DataLoader(data, batch_size=32, shuffle=True):
                optimizer.zero_grad()
                model(inputs).square().mean().backward()
                optimizer.step()
    found = find_recording(tmp_path / "run")
    document = json.loads(found.chunks[-1].document.read_text())
    assert all(one["fetched"] == {"0": one["step"]} for one in document["steps"])
    assert not open_run(tmp_path / "run").symptoms


@pytest.mark.slow
@pytest.mark.long
def test_a_healthy_run_that_rests_shows_no_symptom(tmp_path: Path) -> None:
    """Detectors see the bursts side by side: what changed in a rest is no jump."""
    with resting(tmp_path / "run", pace=pace(rest_s_max=1.0, first_steps=512)) as watcher:
        train(8000)
    assert (watcher.recorded_steps or 8000) < 2000
    assert not [symptom for symptom in open_run(tmp_path / "run").symptoms if symptom.severity != "note"]
