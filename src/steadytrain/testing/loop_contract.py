"""The contract of every training loop under watch, for your loop as well as those tested here.

::

    from steadytrain.testing import Probe, assert_contract

    def train(probe: Probe):
        torch.manual_seed(0)                     # the same training on every call
        model = Net()
        optimizer = torch.optim.AdamW(model.parameters())
        losses = []
        for batch in batches:
            ...
        return losses, model                     # what must be equal bit for bit

    def test_my_loop():
        assert_contract(train, step=3, parameter="head.weight")

The requirements:

1. **invisible**: gradients, weights, optimizer state and random states are bit-identical after every step;
2. **caught**: a NaN planted in one gradient is detected in that step, named, and does not reach the weights;
3. **gone**: after the watch, nothing of ours is left in torch, on modules or in threads;
4. **open**: an internal error of steadytrain is reported once and changes nothing.

``train`` is called several times in this process. If the length of the training varies between calls, nothing can be
compared. Internal errors raise while a contract is checked, except the planted ones.
"""

from __future__ import annotations

import contextlib
import gc
import io
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast
from unittest import mock

import torch

from steadytrain import attach as attach_module
from steadytrain.capture.hooks.fail_open import Guard, raise_own_errors
from steadytrain.capture.step import gate, model_calls
from steadytrain.capture.step.run_stopped import STOPPED_STATUS, RunStopped
from steadytrain.core.incident import Policy
from steadytrain.core.model import Window
from steadytrain.storage.bundle import open_bundle
from steadytrain.storage.run_folder import Run, open_run
from steadytrain.testing.diary import Diary, Fault, digest, random_digest
from steadytrain.testing.leftovers import leftovers

PLANTED = "an error planted by steadytrain.testing"
RUN_NAME = "run"
OBSERVED = ("observed",)
REFUSED = ("refused-update", "refused-rest-of-update")

T = TypeVar("T")


@dataclass
class Probe:
    """The argument of ``train``.

    Args:
        watched: whether this call is watched. Only a loop that attaches itself needs it.
        folder: an empty folder for the loop's files.
        options: arguments for :func:`steadytrain.watch` and the callbacks, for loops that attach themselves.
        nan_at: the step in which the loop must plant a NaN (:meth:`planted`); 0 for none.
    """

    watched: bool
    folder: Path
    options: Mapping[str, Any]
    nan_at: int = 0
    _noted: list[str] = field(default_factory=list)
    _last: tuple[tuple[Any, ...], str] = ((), "")

    def planted(self, step: int, values: torch.Tensor) -> torch.Tensor:
        """``values``, with a NaN in the first element if this call and step should have one."""
        if step == self.nan_at:
            with torch.no_grad():
                values.view(-1)[0] = float("nan")
        return values

    def note(self, *values: Any) -> None:
        """Record values that must be equal at this point; needed without a ``torch.optim`` optimizer.

        The values recorded last, after an update, must be unchanged when the next update is refused.
        """
        self._last = (values, digest(values))
        self._noted.append(f"{self._last[1]} random {random_digest()}")

    def moved_since_note(self) -> list[str]:
        """A message if the values recorded last have changed."""
        values, before = self._last
        return ["what the loop noted"] if values and digest(values) != before else []

    def watch(self, *arguments: Any, **more: Any) -> AbstractContextManager[Any]:
        """``steadytrain.watch`` with these options if the call is watched, else a stand-in."""
        return attach_module.watch(*arguments, **{**self.options, **more}) if self.watched else Unwatched()


class Unwatched:
    """Replaces a watch in an unwatched call of ``train``."""

    def update(self, **_: Any) -> AbstractContextManager[None]:
        return nullcontext()

    def __enter__(self) -> Unwatched:
        return self

    def __exit__(self, *_: object) -> None: ...


@dataclass(frozen=True)
class Recorded:
    """The recording of a healthy run: the scalar signals of each stream of steps, and the facts of the run."""

    streams: Mapping[str, Window]
    facts: Mapping[str, Any]


Train = Callable[[Probe], Any]
Attach = Callable[[Mapping[str, Any]], AbstractContextManager[Any]]


def zero_code(options: Mapping[str, Any]) -> AbstractContextManager[Any]:
    """Attach as ``steadytrain run`` does: around a loop that does not know about it."""
    return attach_module.watch(**options)


def by_itself(options: Mapping[str, Any]) -> AbstractContextManager[Any]:
    """Let the loop attach itself: by a callback, or a call of ``probe.watch``."""
    return nullcontext()


def assert_contract(
    train: Train, *, step: int, parameter: str | None = None, attach: Attach = zero_code, **options: Any
) -> Recorded:
    """Assert the whole contract, and return the recording. Shares the unwatched call of ``train`` between the parts.

    Args:
        train: the training; see the module.
        step: the step of the optimizer that owns the parameter, counted from 1.
        parameter: its name in steadytrain; without one ``train`` plants the NaN (:meth:`Probe.planted`).
        attach: :func:`zero_code` or :func:`by_itself`.
        options: for :func:`steadytrain.watch`.

    Raises:
        AssertionError: the contract does not hold.
    """
    with _calls(train, attach, options) as call:
        bare = call.bare()
        record = _check_invisible(bare, call.watched())
        _check_caught(call, Fault(step, parameter) if parameter is not None else step)
        _check_fails_open(bare, call)
    return record


def assert_invisible(train: Train, *, attach: Attach = zero_code, **options: Any) -> Recorded:
    """Assert that the loop is bit-identical with and without a watch. Returns the recording."""
    with _calls(train, attach, options) as call:
        return _check_invisible(call.bare(), call.watched())


def assert_fault_is_caught(
    train: Train, *, step: int, parameter: str | None = None, attach: Attach = zero_code, **options: Any
) -> None:
    """Assert that a NaN is detected in ``step``: refused and named under ``stop``, recorded and applied under
    ``observe``.

    With ``parameter`` it is planted in that parameter's gradient; without, ``train`` plants it (``probe.planted``).
    """
    with _calls(train, attach, options) as call:
        _check_caught(call, Fault(step, parameter) if parameter is not None else step)


def assert_skip_is_recorded(
    train: Train, *, step: int, parameter: str, attach: Attach = zero_code, **options: Any
) -> None:
    """Assert that a bad step that a gradient scaler skips is recorded as skipped, and that nothing is refused."""
    fault = Fault(step, parameter, skipped=True)
    with _calls(train, attach, options) as call:
        bare = call.bare(fault)
        for policy in ("stop", "observe"):
            ours = call.watched(fault, policy=policy)
            _assert_same(bare, ours)
            record = ours.record()
            window = record.scalars()
            skipped = window.steps[window.skipped].tolist()
            assert skipped == [step], f"step {step} was to be skipped by the scaler, recorded as skipped: {skipped}"
            assert not record.incidents, f"a step that the scaler skipped became an incident under {policy}"


def assert_hooks_gone(
    train: Train, *, step: int | None = None, parameter: str | None = None, attach: Attach = zero_code, **options: Any
) -> None:
    """Assert that nothing of ours is left after a run, and after one that was stopped in ``step`` if given."""
    with _calls(train, attach, options) as call:
        _assert_gone(call.watched())
        if step is not None:
            fault = Fault(step, parameter) if parameter is not None else step
            _assert_gone(call.watched(fault, policy="stop"))


def assert_fails_open(train: Train, *, attach: Attach = zero_code, **options: Any) -> None:
    """Assert that internal errors at the batch, the loss and the gate are reported once each and change nothing."""
    with _calls(train, attach, options) as call:
        _check_fails_open(call.bare(), call)


# -- one call of train -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """The result of one call of ``train``."""

    lines: list[str]
    returned: str
    error: BaseException | None
    told: str
    run_dir: Path
    left: list[str]
    moved: list[str]
    planted: int

    def record(self) -> Run:
        return open_run(self.run_dir)

    @property
    def warnings(self) -> list[str]:
        return [line for line in self.told.splitlines() if line.startswith("steadytrain: warning:")]


class _Calls:
    """Calls ``train``, each time with a new folder."""

    def __init__(self, train: Train, attach: Attach, options: Mapping[str, Any], folder: Path) -> None:
        self._train = train
        self._attach = attach
        self._options = options
        self._folder = folder
        self._count = 0

    def bare(self, fault: Fault | int | None = None) -> Outcome:
        outcome = self._call(fault, watched=False, policy="observe")
        if outcome.error is not None:
            raise outcome.error
        assert outcome.lines or outcome.returned != digest([None]), (
            "there is nothing to compare: no torch.optim optimizer stepped and train returned nothing"
        )
        return outcome

    def watched(self, fault: Fault | int | None = None, *, policy: Policy = "stop") -> Outcome:
        return self._call(fault, watched=True, policy=policy)

    def _call(self, fault: Fault | int | None, *, watched: bool, policy: Policy) -> Outcome:
        self._count += 1
        folder = self._folder / str(self._count)
        (folder / "own").mkdir(parents=True)
        options = {"policy": policy, **self._options, "runs_dir": folder, "name": RUN_NAME}
        nan_at = fault if isinstance(fault, int) else 0
        if isinstance(fault, Fault):
            gc.collect()  # the parameter is searched in the process, so modules of earlier calls must be gone
        probe = Probe(watched, folder / "own", options if watched else {}, nan_at)
        diary = Diary(fault if isinstance(fault, Fault) else None)
        returned, error, told = None, None, _Tee()
        with diary, contextlib.redirect_stderr(cast(Any, told)):
            try:
                with self._attach(options) if watched else nullcontext():
                    returned = self._train(probe)
            except (Exception, SystemExit) as raised:
                error = raised
        step = fault.step if isinstance(fault, Fault) else fault
        moved = [*diary.moved_by_refused(step), *probe.moved_since_note()] if step and error is not None else []
        lines = [*diary.lines, *probe._noted, f"ended random {random_digest()}"] if diary.lines or probe._noted else []
        found = digest([returned])
        del returned
        left = leftovers() if watched else []
        return Outcome(lines, found, error, told.getvalue(), folder / RUN_NAME, left, moved, diary.planted)


@contextmanager
def _calls(train: Train, attach: Attach, options: Mapping[str, Any]) -> Iterator[_Calls]:
    assert attach_module.attached() is None, "this process is being watched already"
    with tempfile.TemporaryDirectory(prefix="steadytrain-testing-") as folder, raise_own_errors():
        yield _Calls(train, attach, options, Path(folder))


class _Tee(io.StringIO):
    """Captures stderr and passes it through."""

    def __init__(self) -> None:
        super().__init__()
        self._through = sys.stderr

    def write(self, text: str) -> int:
        self._through.write(text)
        return super().write(text)


# -- what has to hold --------------------------------------------------------------------------------------------------


def _check_invisible(bare: Outcome, ours: Outcome) -> Recorded:
    _assert_same(bare, ours)
    assert not ours.warnings, f"steadytrain warned: {ours.warnings}"
    _assert_gone(ours)
    record = ours.record()
    assert record.streams(), "no step was recorded"
    sick = [path for path in record.incidents if not open_bundle(path).incident.is_note]
    assert not sick, f"a healthy run was called sick: {sick}"
    return Recorded({stream: record.scalars(stream) for stream in record.streams()}, record.facts)


def _check_caught(call: _Calls, fault: Fault | int) -> None:
    step = fault if isinstance(fault, int) else fault.step
    bare = call.bare(fault)
    assert isinstance(fault, int) or bare.planted, f"no optimizer owns a parameter {fault.parameter} in step {step}"

    observed = call.watched(fault, policy="observe")
    _assert_same(bare, observed)
    _assert_incident(observed.record(), fault, acted=OBSERVED)

    stopped = call.watched(fault, policy="stop")
    assert isinstance(stopped.error, RunStopped), f"the run was not stopped in step {step}, it ended by {stopped.error}"
    assert isinstance(stopped.error, SystemExit)
    assert stopped.error.code == STOPPED_STATUS
    _assert_incident(stopped.record(), fault, acted=REFUSED)
    assert not stopped.moved, f"the refused step changed weights or state of {', '.join(stopped.moved)}"
    assert stopped.record().ended == "stopped"
    _assert_gone(stopped)


def _check_fails_open(bare: Outcome, call: _Calls) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise RuntimeError(PLANTED)

    with contextlib.ExitStack() as planted:
        for owner, name in ((model_calls, "record_call"), (model_calls, "loss_term"), (gate, "fetch")):
            planted.enter_context(mock.patch.object(owner, name, fail))
        planted.enter_context(mock.patch.object(Guard, "reraise", False))
        ours = call.watched()
    _assert_same(bare, ours)
    places = [warning.partition(" failed ")[0] for warning in ours.warnings if PLANTED in warning]
    assert places, "planted errors were not reported"
    assert len(places) == len(set(places)), f"an error was reported more than once: {ours.warnings}"
    _assert_gone(ours)


def _assert_same(bare: Outcome, ours: Outcome) -> None:
    if ours.error is not None:
        raise AssertionError(f"the watched run ended by {type(ours.error).__name__}: {ours.error}") from ours.error
    for without, under in zip(bare.lines, ours.lines, strict=False):
        assert under == without, f"under watch: {under}\nwithout:     {without}"
    assert len(ours.lines) == len(bare.lines), f"{len(ours.lines)} lines under watch, {len(bare.lines)} without"
    assert ours.returned == bare.returned, "what train returned is not the same under watch"


def _assert_incident(record: Run, fault: Fault | int, *, acted: tuple[str, ...]) -> None:
    assert record.incidents, "the planted NaN was not seen"
    incidents = [open_bundle(path).incident for path in record.incidents]
    step, parameter = (fault, None) if isinstance(fault, int) else (fault.step, fault.parameter)
    seen = [f"{[tensor.name for tensor in one.parameters]} in step {one.step} of {one.stream}" for one in incidents]
    told = f"planted in {parameter or 'the loop'} in step {step}, seen: {'; '.join(seen)}"
    found = [one for one in incidents if one.step == step]
    if parameter is not None:  # if several optimizers take turns, the others may also fail in their step of that number
        found = [one for one in found if [tensor.name for tensor in one.parameters] == [parameter]]
    assert found, told
    assert found[0].action.what in acted, f"what was done: {found[0].action.what}, expected: {' or '.join(acted)}"
    assert parameter or found[0].parameters or any(loss != loss for loss in found[0].losses), told


def _assert_gone(outcome: Outcome) -> None:
    assert not outcome.left, f"left behind: {', '.join(outcome.left)}"
    assert attach_module.attached() is None, "the watch is still open"
