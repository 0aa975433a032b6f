"""An exception of the script's signal handler reaches the script, even if it surfaces inside steadytrain."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from torch import nn

import steadytrain
from parameters import telling
from steadytrain.capture.hooks.fail_open import Guard
from steadytrain.capture.hooks.script_errors import is_of_script


class LimitError(Exception):
    """What the script's handler raises."""


def plain(number: int, frame: FrameType | None) -> None:
    raise LimitError


def any_arguments(*_: Any) -> None:
    raise LimitError


def deeper(number: int, frame: FrameType | None) -> None:
    any_arguments()


class Deadline:
    def reached(self, number: int, frame: FrameType | None) -> None:
        raise TimeoutError("the job's time is up")


HANDLERS = [plain, any_arguments, deeper, Deadline().reached]


@pytest.fixture
def handled() -> Iterator[Callable[[Any], None]]:
    before = signal.getsignal(signal.SIGUSR1)
    yield lambda handler: signal.signal(signal.SIGUSR1, handler)
    signal.signal(signal.SIGUSR1, before)


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGUSR1)
    for _ in range(1000):  # Python runs the handler between two of these
        pass


@pytest.mark.parametrize("handler", HANDLERS, ids=["plain", "any arguments", "deeper", "method"])
def test_the_exception_of_a_handler_passes_a_guard(handler: Any, handled: Callable[[Any], None]) -> None:
    handled(handler)
    told: list[str] = []
    guard = Guard(told.append)
    for guarded in (guard.wrap(interrupt), lambda: _in_part(guard)):
        with pytest.raises((LimitError, TimeoutError)):
            guarded()
    assert told == []


def _in_part(guard: Guard) -> None:
    with guard.part("a part"):
        interrupt()


def test_an_exception_of_code_that_steadytrain_called_is_not_the_scripts_own() -> None:
    def forward(frame: Any) -> None:
        raise LimitError

    with pytest.raises(LimitError) as called:
        forward(sys._getframe(1))  # a frame, but not the one that called
    assert not is_of_script(called.value)
    with pytest.raises(KeyError) as plain:
        {}["missing"]
    assert not is_of_script(plain.value)


def test_an_exception_that_another_thread_sets_is_the_scripts() -> None:
    """``PyThreadState_SetAsyncExc``: it appears in a frame of ours, and no frame of the script raised it."""
    assert is_of_script(LimitError())


PLACES = [
    "capture.step.gate:measure",
    "capture.step.input_recorder:BufferKeeper.keep",
    "capture.snapshots.rewind:Rewind.gate",
    "detection.run_recorder:RunRecorder.commit",
    "detection.run_recorder:RunRecorder.read",
    "detection.detector_schedule:DetectorSchedule.turn",
    "storage.segments:SegmentWriter.append",
    "capture.step.data_loaders:DataLoaders.fetch_begins",
]


@pytest.mark.parametrize("place", telling(PLACES, PLACES[::2]))
def test_a_time_limit_inside_steadytrain_reaches_the_script(
    place: str, handled: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    module, _, path = place.partition(":")
    owner: Any = importlib.import_module(f"steadytrain.{module}")
    *above, name = path.split(".")
    for part in above:
        owner = getattr(owner, part)
    original, armed = getattr(owner, name), [False]

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        if armed[0]:
            armed[0] = False
            interrupt()
        return original(*args, **kwargs)

    for holder in [owner, *(m for n, m in sys.modules.items() if n.startswith("steadytrain.") and not above)]:
        if getattr(holder, name, None) is original:
            monkeypatch.setattr(holder, name, interrupted)
    handled(plain)
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = torch.utils.data.DataLoader(torch.randn(40, 4), batch_size=4)
    arrived = 0
    with steadytrain.watch(model, optimizer, name="run", runs_dir=tmp_path):
        for epoch in range(4):
            armed[0] = epoch == 1
            try:
                for batch in loader:
                    optimizer.zero_grad()
                    model(batch).square().mean().backward()
                    optimizer.step()
            except LimitError:
                arrived += 1
    assert (arrived, armed) == (1, [False])
    run = steadytrain.load_run(tmp_path / "run")
    assert len(run.scalars()) >= 29  # the watch goes on
    assert not run.facts.get("warnings")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("CUDA error: device-side assert triggered", 0),
        ("CUDA error: an illegal memory access was encountered", 0),
        ("CUDA error: operation not permitted when stream is capturing", 1),
    ],
)
def test_a_gpu_that_failed_is_no_error_of_ours(text: str, told: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Guard, "reraise", False)
    said: list[str] = []
    guard = Guard(said.append)
    with guard.part("the gate"):
        raise RuntimeError(text)
    assert len(guard.warnings) == len(said) == told
