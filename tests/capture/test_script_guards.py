"""A script that guards itself: a batch that it lets go without an update is an incident, whatever the script does."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import steadytrain
from steadytrain.capture.step import script_guards
from steadytrain.core.incident import Incident
from steadytrain.storage.bundle import open_bundle
from steadytrain.storage.run_folder import Run, open_run

BAD = 4
"""The step that goes wrong, counted from 1."""


class EndedError(Exception):
    """What the script raises itself."""


def make() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1))
    return model, torch.optim.Adam(model.parameters(), lr=1e-2)


def loss_of(model: nn.Module, step: int) -> Tensor:
    """At the bad step the root of a negative number."""
    inputs = torch.randn(8, 6)
    loss = (model(inputs).squeeze(-1) - inputs.sum(-1)).pow(2).mean()
    return torch.sqrt(-loss) if step == BAD else loss


def breaks(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for step in range(1, 9):
        inputs = torch.randn(8, 6)
        loss = (model(inputs).squeeze(-1) - inputs.sum(-1)).pow(2).mean()
        loss = torch.sqrt(-loss) if step == BAD else loss
        if not torch.isfinite(loss):
            break
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def raises(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for step in range(1, 9):
        out = {"loss": loss_of(model, step)}
        if not torch.isfinite(out["loss"]):
            raise EndedError(step)
        optimizer.zero_grad()
        out["loss"].backward()
        optimizer.step()


def goes_on(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for step in range(1, 9):
        loss = loss_of(model, step)
        if not torch.isfinite(loss):
            continue
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def leaves_the_step_out(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for step in range(1, 9):
        loss = loss_of(model, step)
        optimizer.zero_grad()
        loss.backward()
        if all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None):
            optimizer.step()


def clips(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for step in range(1, 9):
        loss = loss_of(model, step)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)
        optimizer.step()


def detects_anomalies(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    with torch.autograd.set_detect_anomaly(True, check_nan=True):
        for step in range(1, 9):
            inputs = torch.randn(8, 6)
            loss = (model(inputs).squeeze(-1) - inputs.sum(-1)).pow(2).mean()
            if step == BAD:
                loss = loss + (loss - loss.detach()).pow(2).sqrt()  # finite, with a gradient that is not
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


Script = Callable[[nn.Module, torch.optim.Optimizer], None]
ENDS: dict[Script, type[Exception] | None] = {
    breaks: None,
    raises: EndedError,
    goes_on: None,
    leaves_the_step_out: None,
    clips: RuntimeError,
    detects_anomalies: RuntimeError,
}


def watched(script: Script, folder: Path, **options: Any) -> tuple[Run, nn.Module]:
    model, optimizer = make()
    expected = ENDS.get(script)
    with (
        pytest.raises(expected) if expected is not None else contextlib.nullcontext(),
        steadytrain.watch(model, optimizer, runs_dir=folder, name="run", **options),
    ):
        script(model, optimizer)
    return open_run(folder / "run"), model


def incident_of(run: Run) -> Incident:
    (path,) = sorted((run.path / "incidents").iterdir())
    return open_bundle(path).incident


@pytest.mark.parametrize("script", ENDS, ids=lambda script: script.__name__)
def test_the_batch_is_an_incident_with_its_operation(script: Script, tmp_path: Path) -> None:
    run, _ = watched(script, tmp_path)
    incident = incident_of(run)
    assert (incident.kind, incident.step, incident.micro_batches) == ("nonfinite", BAD, 1)
    (symptom,) = run.symptoms
    assert symptom.severity == ("warning" if script in (goes_on, leaves_the_step_out) else "critical")
    assert symptom.name == ("nonfinite-gradient" if script is detects_anomalies else "nonfinite-loss")
    if script is goes_on:  # what the loss was made of is the next batch's by then
        assert "came out finite" in incident.why
        return
    assert incident.located is not None, incident.why
    wanted = ("aten.div", "aten.pow", "aten.mul", "aten.sqrt") if script is detects_anomalies else ("aten.sqrt",)
    assert incident.located.operation.startswith(wanted)
    assert incident.state_note.startswith(f"kept as it was before step {BAD}")


@pytest.mark.parametrize("script", [goes_on, leaves_the_step_out], ids=lambda script: script.__name__)
def test_the_training_is_what_it_is_bare(script: Script, tmp_path: Path) -> None:
    model, optimizer = make()
    script(model, optimizer)
    _, same = watched(script, tmp_path)
    for (name, here), there in zip(model.state_dict().items(), same.state_dict().values(), strict=True):
        assert torch.equal(here, there) or (here.isnan() & there.isnan()).any(), name


def test_skips_are_counted_in_one_symptom(tmp_path: Path) -> None:
    def skips(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        for step in range(40):
            inputs = torch.randn(8, 6)
            if step in (11, 13, 20, 21, 30, 31, 32):
                inputs[2, 3] = torch.nan
            loss = model(inputs).pow(2).mean()
            if not torch.isfinite(loss):
                continue
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    run, _ = watched(skips, tmp_path)
    assert incident_of(run).step == 12
    (symptom,) = (one for one in run.symptoms if one.name != "nan-buffer")  # its batch norm met the bad batches
    assert "at step 12; since then the script made no update with 7 of 29 batches" in symptom.message
    assert symptom.severity == "critical"  # three in a row


def test_the_first_batch_of_all(tmp_path: Path) -> None:
    def at_once(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        loss = torch.sqrt(-model(torch.randn(8, 6)).pow(2).mean())
        assert not torch.isfinite(loss)

    run, _ = watched(at_once, tmp_path)
    assert incident_of(run).step == 1


def test_a_loss_on_a_device_that_is_busy_is_looked_at_when_the_script_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script_guards, "_is_ready", lambda value: False)
    assert not watched(goes_on, tmp_path / "goes_on")[0].symptoms
    assert watched(breaks, tmp_path / "breaks")[0].symptoms


def two_halves(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for _ in range(6):
        halves = [model(torch.randn(8, 6)) for _ in range(2)]
        loss = (halves[0] - halves[1]).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def losses_that_are_summed(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for _ in range(6):
        total = torch.zeros(())
        for _ in range(5):
            total = total + model(torch.randn(8, 6)).pow(2).mean()
        optimizer.zero_grad()
        total.backward()
        optimizer.step()


@pytest.mark.parametrize("script", [two_halves, losses_that_are_summed], ids=lambda script: script.__name__)
def test_healthy_loops_are_left_alone(script: Script, tmp_path: Path) -> None:
    model, optimizer = make()
    script(model, optimizer)
    run, same = watched(script, tmp_path)
    assert not run.symptoms
    assert not list(run.path.glob("incidents/*"))
    for (name, here), there in zip(model.state_dict().items(), same.state_dict().values(), strict=True):
        assert torch.equal(here, there), name


def test_a_frame_is_kept_only_between_the_call_and_backward(tmp_path: Path) -> None:
    model, optimizer = make()
    with steadytrain.watch(model, optimizer, runs_dir=tmp_path, name="run") as watch:
        guards = watch._watcher._guards  # type: ignore[attr-defined]
        loss = model(torch.randn(8, 6)).pow(2).mean()
        assert guards._frame is not None
        loss.backward()
        assert guards._frame is None
        optimizer.step()


def refused(model: nn.Module, optimizer: torch.optim.Optimizer, *, bad: str) -> None:
    """`binary_cross_entropy` on the CPU refuses NaN: the script has no loss when it ends."""
    for step in range(1, 9):
        inputs, labels = torch.randn(8, 6), torch.rand(8)
        if step == BAD and bad == "batch":
            inputs[5, 2] = math.nan
        if step == BAD and bad == "weight":
            with torch.no_grad():
                next(model.parameters())[0, 0] = math.nan
        if step == BAD and bad == "label":
            labels = labels + 2.0
        loss = nn.functional.binary_cross_entropy(model(inputs).squeeze(-1).sigmoid(), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def ends_refused(folder: Path, bad: str) -> None:
    model, optimizer = make()
    with (
        pytest.raises(RuntimeError, match="between 0 and 1"),
        steadytrain.watch(model, optimizer, runs_dir=folder, name="run"),
    ):
        refused(model, optimizer, bad=bad)


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        ("batch", "the batch already holds NaN: args[0], 1 of 48 values, first at [5, 2]"),
        ("weight", "the parameter already holds NaN: 0.weight"),
    ],
)
def test_a_script_that_ends_because_an_operation_refuses_nan(bad: str, told: str, tmp_path: Path) -> None:
    ends_refused(tmp_path, bad)
    run = open_run(tmp_path / "run")
    (symptom,) = [one for one in run.symptoms if one.name == "nonfinite-loss"]
    assert (symptom.severity, symptom.first_step) == ("critical", BAD)
    assert symptom.message.startswith(f"at step {BAD} the script ended by RuntimeError without a finite loss: ")
    (incident,) = [open_bundle(path).incident for path in run.incidents]
    assert incident.finding.came_in.startswith(told)


def test_an_error_of_another_kind_is_no_symptom(tmp_path: Path) -> None:
    ends_refused(tmp_path, "label")
    run = open_run(tmp_path / "run")
    assert [one.name for one in run.symptoms if one.name.startswith("nonfinite")] == []
    assert not run.incidents


class Mends(nn.Module):
    """A model that fills the gaps in what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 1)

    def forward(self, inputs: Tensor) -> Tensor:
        out: Tensor = self.layer(inputs.nan_to_num())
        return out


def has_enough(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for step in range(1, 9):
        inputs = torch.randn(8, 6)
        inputs[2, 3] = math.nan
        out = model(inputs)
        if step == BAD:
            raise ValueError(step)
        optimizer.zero_grad()
        out.square().mean().backward()
        optimizer.step()


def test_gaps_that_the_model_fills_are_not_why_a_script_ends(tmp_path: Path) -> None:
    model = Mends()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    watch = steadytrain.watch(model, optimizer, runs_dir=tmp_path, name="run")
    with pytest.raises(ValueError, match=str(BAD)), watch:
        has_enough(model, optimizer)
    run = open_run(tmp_path / "run")
    assert [one.name for one in run.symptoms if one.name.startswith("nonfinite")] == []
