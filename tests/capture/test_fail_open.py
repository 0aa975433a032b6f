"""Fail open: an error of ours never stops a run, nor changes it.

Each error is reported in one line, and training goes on bit for bit as without us. A bad step is refused all the same.
"""

from __future__ import annotations

import contextlib
import gc
import sqlite3
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fail_open_for_users import _as_for_users  # noqa: F401 (an autouse fixture)
from torch import Tensor, nn

import steadytrain
from parameters import telling
from steadytrain.capture.hooks.clipping import Clipping
from steadytrain.capture.hooks.fail_open import Guard
from steadytrain.capture.hooks.hooked_modules import HookedModules
from steadytrain.capture.incident import environment, freeze, incident
from steadytrain.capture.step import gate, input_recorder, model_calls, stopping, stream_assignment, watcher
from steadytrain.capture.step.optimizer_steps import OptimizerSteps
from steadytrain.capture.step.stopping import Stopping
from steadytrain.capture.step.stream_assignment import StreamAssignment
from steadytrain.core.model import Symptom
from steadytrain.detection.run_recorder import RunRecorder
from steadytrain.detection.step_history import StepHistory
from steadytrain.detectors import Detector
from steadytrain.detectors.loss_spike import LossSpike
from steadytrain.grouping import catalog
from steadytrain.storage.run_folder import RunWriter
from steadytrain.storage.segments import SegmentWriter
from steadytrain.tracing.investigator import ScriptLoopRerun, StepInvestigator

STEPS = 20
BAD_STEP = 7
NAN = float("nan")


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.1))
        self.head = nn.Linear(6, 1)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.body(inputs))


@pytest.mark.parametrize("way", ["part", "wrap"])
def test_a_failed_call_keeps_nothing_of_the_script_alive(way: str) -> None:
    """A graph that lives on keeps the shape of its parameters: a vocabulary that grows would fail in backward."""
    guard = Guard(lambda _: None)
    held: list[weakref.ref[Tensor]] = []

    def fail(loss: Tensor) -> None:
        held.append(weakref.ref(loss))
        raise RuntimeError("ours")

    def fail_in_part() -> None:
        with guard.part("a part"):
            fail(torch.ones(1, requires_grad=True).sum())

    gc.collect()
    gc.disable()
    try:
        for _ in range(2):  # the second one is not reported again
            fail_in_part() if way == "part" else guard.wrap(fail)(torch.ones(1, requires_grad=True).sum())
            assert held.pop()() is None
    finally:
        gc.enable()


def train(*, runs_dir: Path | None, bad_step: int = 0) -> tuple[list[bytes], BaseException | None]:
    """A loop that passes every kind of hook: a loader, accumulation, a scaler, clipping. Its bad step needs a lap."""
    torch.manual_seed(1)
    ending: BaseException | None = None
    rows = [torch.full((4,), number % 10 / 9.0) for number in range(10 * STEPS)]  # each step gets the same ten
    data = torch.utils.data.DataLoader(rows, batch_size=5)
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    batches = iter(data)

    def accumulate() -> None:
        for _ in range(2):
            inputs = next(batches)
            loss = (model(inputs + torch.randn(5, 4)) - inputs.sum(-1, keepdim=True)).pow(2).mean() / 2
            scaler.scale(loss).backward()

    try:
        with contextlib.ExitStack() as watched:
            if runs_dir is not None:
                watched.enter_context(steadytrain.watch(model, optimizer, runs_dir=runs_dir, name="run"))
            for step in range(1, STEPS + 1):
                optimizer.zero_grad()
                accumulate()
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                if step == bad_step:
                    model.head.bias.grad = torch.full((1,), NAN)
                optimizer.step()
                scaler.update()
    except SystemExit as stop:
        ending = stop
    return [tensor.detach().numpy().tobytes() for tensor in [*model.parameters(), *model.buffers()]], ending


def broken(*args: Any, **kwargs: Any) -> Any:
    raise RuntimeError("planted")


def disk_full(*args: Any, **kwargs: Any) -> Any:
    raise OSError(28, "No space left on device")


def locked(*args: Any, **kwargs: Any) -> Any:
    raise sqlite3.OperationalError("database is locked")


# Where the error is planted: owner, name, and what it raises.
ANYWHERE: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "finding the model": (watcher, "find_model", broken),
    "naming parameters": (stream_assignment, "name_parameters", broken),
    "recording a call": (model_calls, "record_call", broken),
    "keeping buffers": (input_recorder.BufferKeeper, "keep", broken),
    "reading the random state": (input_recorder.RandomState, "take", broken),
    "outputs of the model": (model_calls, "scalar_outputs", broken),
    "taking the loss apart": (model_calls, "loss_term", broken),
    "reading before clipping": (Clipping, "begin", broken),
    "leading": (StreamAssignment, "lead", broken),
    "refreshing": (StreamAssignment, "refresh", broken),
    "the look": (gate, "fetch", broken),
    "norms": (gate, "l2_norms", broken),
    "the loss without its scale": (gate, "unscaled", broken),
    "the learning rate": (gate, "_learning_rate", broken),
    "finishing a step": (OptimizerSteps, "_finish", broken),
    "the ring of batches": (input_recorder.BatchRing, "add", broken),
    "the history": (StepHistory, "append", broken),
    "opening the run": (RunRecorder, "open", broken),
    "facts of the model": (environment, "model_facts", broken),
    "the folder": (RunWriter, "__init__", disk_full),
    "the facts of the run": (RunWriter, "set_fact", locked),
    "a segment": (SegmentWriter, "append", disk_full),
    "closing a segment": (SegmentWriter, "close", disk_full),
    "closing the folder": (RunWriter, "close", locked),
    "a detector": (LossSpike, "check", broken),
    "unhooking": (HookedModules, "settle", broken),
}

# An error in what several entry points share is told once for each.
TOLD_MORE_THAN_ONCE = {
    "the facts of the run": 2,
    "the environment": 2,
    "closing a segment": 2,
    "committing": 2,
}


@pytest.fixture(scope="module")
def bare() -> list[bytes]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    found, _ = train(runs_dir=None)
    torch.set_num_threads(threads)
    return found


@pytest.fixture(scope="module")
def before_the_bad_step(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    found, _ = train(runs_dir=tmp_path_factory.mktemp("refused"), bad_step=BAD_STEP)
    torch.set_num_threads(threads)
    return found


def test_without_an_error_nothing_is_told(
    bare: list[bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(runs_dir=tmp_path) == (bare, None)
    assert capsys.readouterr().err == ""


ALIKE = {
    *("naming parameters", "reading the random state", "outputs of the model", "taking the loss apart", "refreshing"),
    *("norms", "the loss without its scale", "the learning rate", "the ring of batches", "facts of the model"),
    *("closing a segment", "closing the folder"),
    *("planning", "the ledger", "the message", "the reason", "keeping the schedule", "the fetch of the lap"),
    *("the forward of the lap", "the gate of the lap"),
}
"""Called by the same guarded entry point as a neighbour that stays in the ordinary suite."""


@pytest.mark.parametrize("place", telling(ANYWHERE, set(ANYWHERE) - ALIKE))
def test_an_error_of_ours_is_told_once_and_changes_nothing(
    place: str,
    bare: list[bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    owner, name, error = ANYWHERE[place]
    monkeypatch.setattr(owner, name, staticmethod(error) if isinstance(owner, type) else error)
    assert train(runs_dir=tmp_path) == (bare, None)
    warnings = [line for line in capsys.readouterr().err.splitlines() if "warning:" in line]
    assert len(warnings) == TOLD_MORE_THAN_ONCE.get(place, 1), warnings
    assert all("failed (" in warning for warning in warnings)


AT_THE_INCIDENT: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "restoring buffers": (input_recorder.BufferKeeper, "restore", broken),
    "committing": (RunRecorder, "commit", broken),
    "detecting": (RunRecorder, "detect", broken),
    "planning": (incident, "state_plan", broken),
    "the environment": (environment, "versions", broken),
    "the bundle": (freeze, "write_bundle", disk_full),
    "the state": (freeze, "write_state", disk_full),
    "the index": (RunWriter, "add_incident", locked),
    "the ledger": (RunWriter, "add_action", locked),
    "the scene": (stopping, "at_gate", broken),
    "the investigator": (StepInvestigator, "investigate", broken),
    "the lap begins": (ScriptLoopRerun, "__init__", broken),
    "the finding": (stopping, "update_incident", disk_full),
    "the message": (stopping, "stop_message", broken),
    "the reason": (stopping, "reason", broken),
    "the end": (Stopping, "_finish", broken),
    "keeping the schedule": (input_recorder.Schedule, "take", broken),
    "the fetch of the lap": (ScriptLoopRerun, "fetch", broken),
    "the forward of the lap": (ScriptLoopRerun, "forward_begins", broken),
    "the backward of the lap": (ScriptLoopRerun, "backward_begins", broken),
    "the gate of the lap": (ScriptLoopRerun, "gate", broken),
}


@pytest.mark.parametrize("place", telling(AT_THE_INCIDENT, set(AT_THE_INCIDENT) - ALIKE))
def test_a_bad_step_is_refused_whatever_of_ours_breaks(
    place: str,
    before_the_bad_step: list[bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    owner, name, error = AT_THE_INCIDENT[place]
    monkeypatch.setattr(owner, name, staticmethod(error) if isinstance(owner, type) else error)
    weights, ending = train(runs_dir=tmp_path, bad_step=BAD_STEP)
    assert isinstance(ending, steadytrain.RunStopped)
    assert ending.code == 70
    if place != "restoring buffers":
        assert weights == before_the_bad_step
    warnings = [line for line in capsys.readouterr().err.splitlines() if "warning:" in line]
    assert len(warnings) == TOLD_MORE_THAN_ONCE.get(place, 1), warnings


# -- plug-ins ----------------------------------------------------------------------------------------------------------


class Raises(Detector):
    """Not one of ours: a detector that a plug-in brings along."""

    def check(self, window: Any) -> tuple[Symptom, ...]:
        raise KeyError("no such signal")


def test_a_detector_that_raises_is_put_aside(
    bare: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(catalog, "detectors", lambda: [Raises(), LossSpike()])
    assert train(runs_dir=tmp_path) == (bare, None)
    (told,) = capsys.readouterr().err.splitlines()
    assert told.startswith("steadytrain: warning: the detector Raises failed (KeyError: 'no such signal')")
