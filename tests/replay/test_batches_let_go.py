"""A batch that a script lets go by itself is on the tape: made again, it is let go again, to the last bit."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fingerprint import seed
from replaying import ReplayOver, plain_process, record
from steadytrain.capture.settings import Settings
from steadytrain.capture.step.observers import StepObserver
from steadytrain.capture.step.watcher import Watcher
from steadytrain.core.incident import Finding
from steadytrain.detection import run_recorder
from steadytrain.experiments.specs import Entry
from steadytrain.locate.traced_replay import Locator
from steadytrain.replay.engine import Replayer
from steadytrain.replay.own_steps import OwnSteps
from steadytrain.replay.verdict import Replayed
from steadytrain.storage.tape_files import Recording, find_recording
from trying import attempt

pytestmark = pytest.mark.filterwarnings("ignore:Error detected in")

BAD, LAST = 9, 14

Step = Callable[[int, nn.Module, torch.optim.Optimizer, Tensor], bool]


class EndedError(Exception):
    """What the script raises itself."""


def loop(step_of: Step, bad: tuple[int, ...] = (BAD,)) -> None:
    seed(4)
    model = nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.1), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    data = torch.randn(LAST, 12, 5)
    for step in range(1, LAST + 1):
        inputs = data[step - 1]
        loss = (model(inputs).squeeze(-1) - inputs.sum(-1)).pow(2).mean()
        if step in bad:
            loss = torch.sqrt(-loss)
        if not step_of(step, model, optimizer, loss):
            return


def updates(optimizer: torch.optim.Optimizer, loss: Tensor) -> bool:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return True


def breaks(step: int, model: nn.Module, optimizer: torch.optim.Optimizer, loss: Tensor) -> bool:
    return bool(torch.isfinite(loss)) and updates(optimizer, loss)


def raises(step: int, model: nn.Module, optimizer: torch.optim.Optimizer, loss: Tensor) -> bool:
    if not torch.isfinite(loss):
        raise EndedError(step)
    return updates(optimizer, loss)


def goes_on(step: int, model: nn.Module, optimizer: torch.optim.Optimizer, loss: Tensor) -> bool:
    return not torch.isfinite(loss) or updates(optimizer, loss)


def leaves_the_step_out(step: int, model: nn.Module, optimizer: torch.optim.Optimizer, loss: Tensor) -> bool:
    optimizer.zero_grad()
    loss.backward()
    if all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None):
        optimizer.step()
    return True


def clips(step: int, model: nn.Module, optimizer: torch.optim.Optimizer, loss: Tensor) -> bool:
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)
    optimizer.step()
    return True


def clips_and_goes_on(step: int, model: nn.Module, optimizer: torch.optim.Optimizer, loss: Tensor) -> bool:
    try:
        return clips(step, model, optimizer, loss)
    except RuntimeError:
        return True


def has_no_gradient(step: int, model: nn.Module, optimizer: torch.optim.Optimizer, loss: Tensor) -> bool:
    """The loss is finite; autograd finds the gradient that is not."""
    if not torch.isfinite(loss):
        weight = next(model.parameters())
        loss = (weight - weight.detach()).pow(2).sum().sqrt()
    with torch.autograd.set_detect_anomaly(True, check_nan=True):
        return updates(optimizer, loss)


def detects_anomalies(step: int, model: nn.Module, optimizer: torch.optim.Optimizer, loss: Tensor) -> bool:
    with torch.autograd.set_detect_anomaly(True, check_nan=True):
        return updates(optimizer, loss)


SICK = (breaks, raises, goes_on, leaves_the_step_out, clips, clips_and_goes_on, detects_anomalies)
HEALTHY = (breaks, goes_on, clips)
"""The same guards, in a run in which nothing is let go."""


@pytest.fixture(autouse=True)
def _plain() -> Iterator[None]:
    with plain_process():
        yield
    assert not torch.is_anomaly_enabled()


def recorded(run: Callable[[], None], folder: Path) -> Recording:
    """The recording in the bundle of what was let go; the run's own where nothing was."""
    with contextlib.suppress(EndedError, RuntimeError):
        record(run, folder, every=4)
    bundles = sorted((folder / "incidents").iterdir()) if (folder / "incidents").is_dir() else [folder]
    return find_recording(bundles[0])


def followed(run: Callable[[], None], observer: StepObserver, folder: Path) -> Any:
    """What ``observer`` ended the loop with, in a process as it is launched for a replay."""
    settings = Settings(run_dir=folder / "unused", run_name="replay", policy="observe")
    watcher = Watcher(settings, tell=print, record=run_recorder.recording(), observer=observer)
    try:
        try:
            run()
        except Exception as error:
            watcher.script_over(error)
        else:
            watcher.script_over(None)
    except ReplayOver as over:
        return over.result
    finally:
        watcher.close(ended="failed")
    raise AssertionError("the loop ended before its replay did")


def over(result: Any, *_: Any) -> None:
    raise ReplayOver(result)


def replayed(run: Callable[[], None], recording: Recording, until: int) -> Replayed | str:
    snapshot, last = recording.choose(first=6, until=until)
    own = OwnSteps(snapshot.step, skips=False)
    observer = Replayer(recording, snapshot=snapshot, until=last, own_steps=own, final=None, done=over)
    result: Replayed | str = followed(run, observer, recording.folder)
    return result


@pytest.mark.parametrize("step_of", [*SICK, has_no_gradient], ids=lambda one: one.__name__)
def test_it_is_let_go_again_to_the_last_bit(step_of: Step, tmp_path: Path) -> None:
    run = partial(loop, step_of)
    recording = recorded(run, tmp_path)
    assert recording.last_step == BAD
    result = replayed(run, recording, BAD)
    assert isinstance(result, Replayed), result
    assert (result.exact, result.symptom, result.until_step) == (True, True, BAD), result


@pytest.mark.parametrize("step_of", HEALTHY, ids=lambda one: one.__name__)
def test_a_guard_that_never_acts_changes_nothing_in_a_replay(step_of: Step, tmp_path: Path) -> None:
    run = partial(loop, step_of, ())
    recording = recorded(run, tmp_path)
    assert recording.last_step == LAST
    result = replayed(run, recording, LAST)
    assert isinstance(result, Replayed), result
    assert (result.exact, result.symptom) == (True, False)


def test_a_batch_that_is_not_let_go_any_more_is_a_difference(tmp_path: Path) -> None:
    """The fault was mended since: the same step makes its update."""
    recording = recorded(partial(loop, goes_on), tmp_path)
    result = replayed(partial(loop, goes_on, ()), recording, BAD)
    assert isinstance(result, Replayed), result
    assert (result.exact, result.symptom) == (False, False)


@pytest.mark.parametrize("step_of", [goes_on, leaves_the_step_out, clips_and_goes_on], ids=lambda one: one.__name__)
def test_the_steps_after_it_are_on_the_tape_with_it(step_of: Step, tmp_path: Path) -> None:
    """The script went on: the step that was made in its place had the call of the batch let go, and its own."""
    run = partial(loop, step_of)
    recorded(run, tmp_path)
    recording = find_recording(tmp_path)
    assert recording.last_step == LAST - 1, "one update less than batches"
    result = replayed(run, recording, LAST - 1)
    assert isinstance(result, Replayed), result
    assert (result.exact, result.symptom) == (True, False), result


@pytest.mark.parametrize("step_of", SICK, ids=lambda one: one.__name__)
def test_its_first_bad_operation_is_named_in_a_new_process(step_of: Step, tmp_path: Path) -> None:
    run = partial(loop, step_of)
    recording = recorded(run, tmp_path)
    snapshot, _ = recording.choose(first=6, until=BAD)
    locator = Locator(recording, snapshot=snapshot, step=BAD, own_steps=OwnSteps(5, skips=False), done=over)
    document: Mapping[str, Any] = followed(run, locator, tmp_path)
    assert "cannot" not in document, document
    located = Finding.from_json(document["finding"]).located
    assert located is not None, document["finding"]
    assert (located.operation, located.produced, located.phase) == ("aten.sqrt.default", "nan", "loss")


@pytest.mark.parametrize("step_of", [goes_on, leaves_the_step_out, clips_and_goes_on], ids=lambda one: one.__name__)
def test_a_trial_without_the_batch_goes_on_after_it_was_let_go(step_of: Step, tmp_path: Path) -> None:
    run = partial(loop, step_of)
    recording = recorded(run, tmp_path)
    entries = [*map(Entry, range(6, BAD)), Entry(BAD, "refused"), Entry(None), Entry(None)]
    outcome = attempt(run, recording, entries, begin=5)
    assert outcome.first_nonfinite is None
    assert len(outcome.steps) == BAD - 6 + 2


@pytest.mark.parametrize("step_of", [*SICK, has_no_gradient], ids=lambda one: one.__name__)
def test_the_unchanged_trial_ends_with_it(step_of: Step, tmp_path: Path) -> None:
    run = partial(loop, step_of)
    recording = recorded(run, tmp_path)
    outcome = attempt(run, recording, [*map(Entry, range(6, BAD + 1)), Entry(None)], begin=5)
    assert outcome.first_nonfinite is not None
    assert outcome.exact
