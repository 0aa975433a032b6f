"""The thread that reads the machine and keeps the readings until the training thread takes them."""

from __future__ import annotations

import math
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from steadytrain.capture.hooks.fail_open import Guard
from steadytrain.capture.machine.allocator import CudaDevice, devices_in_use
from steadytrain.capture.machine.bounded import BoundedCaller, NoAnswerError
from steadytrain.capture.machine.host import HostProbe
from steadytrain.capture.machine.machine_columns import COLUMNS
from steadytrain.capture.machine.nvml import NvmlProbe
from steadytrain.core.extras import install
from steadytrain.core.model import Reading

TABLE = "machine"
SAMPLES_MAX = 512
"""Readings kept until they are taken; the oldest are dropped. At the shortest interval of 5 s that is 40 minutes."""

NVML_WAIT_S = 10.0
"""A healthy driver answers in milliseconds, a driver that resets a GPU within seconds."""

CLOSE_WAIT_S = 2.0
FORK_WAIT_S = 0.5


@dataclass(frozen=True)
class Sample:
    """One reading of the table ``machine``, and its time in seconds since the epoch."""

    time: float
    reading: Reading


class MachineSampler:
    """Reads the machine every ``every_s`` seconds, from :meth:`start` to :meth:`close`.

    Args:
        folder: the run folder; the free space of its disk is read.
        every_s: interval in seconds of wall-clock time.
        guard: reports our own error once; the error ends the readings.
        clock: the time of a sample, in seconds since the epoch.
    """

    def __init__(self, folder: Path, *, every_s: float, guard: Guard, clock: Callable[[], float] = time.time) -> None:
        self.notes: list[str] = []
        self._every_s = every_s
        self._guard = guard
        self._clock = clock
        self._host = HostProbe(folder)
        self._nvml: NvmlProbe | None = None
        self._caller: BoundedCaller | None = None
        self._no_nvml: str | None = None
        self._described: set[int] = set()
        self._facts: dict[str, Any] = {}
        self._samples: deque[Sample] = deque(maxlen=SAMPLES_MAX)
        self._recent: deque[Sample] = deque(maxlen=SAMPLES_MAX)
        self._closing = threading.Event()
        self._reading = threading.Lock()
        self._process = os.getpid()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread, once. It takes the first reading at once."""
        if self._thread is None:
            self._facts["host"] = self._host.facts()
            self._thread = threading.Thread(target=self._run, name="steadytrain-machine", daemon=True)
            _pause_at_fork(self)
            self._thread.start()

    def take(self) -> list[Sample]:
        """The readings since the last call, oldest first."""
        taken = []
        while self._samples:
            taken.append(self._samples.popleft())
        return taken

    def recent(self) -> list[Sample]:
        """The last readings, taken or not."""
        return list(self._recent)

    @property
    def facts(self) -> dict[str, Any]:
        """Processor, memory, GPUs and driver, as JSON. It has a GPU after the first reading that finds it in use."""
        return dict(self._facts)

    def close(self) -> None:
        """End the thread and wait for it, with a time limit: a disk or a driver may hang."""
        if os.getpid() != self._process:
            return  # a forked child does not have our thread
        self._closing.set()
        if self._thread is not None:
            self._thread.join(CLOSE_WAIT_S)

    # -- in the thread ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        with self._guard.part("reading the machine"):
            try:
                while not self._closing.is_set():
                    with self._reading:
                        sample = self._sample()
                    self._samples.append(sample)
                    self._recent.append(sample)
                    self._closing.wait(self._every_s)
            finally:
                self._close_nvml()

    def _sample(self) -> Sample:
        now = self._clock()
        devices = devices_in_use()
        rows: dict[str, dict[str, float]] = {"host": self._host.read()}
        asked = self._ask_nvml(devices) if devices else {}
        for device in devices:
            rows[device.row] = {**device.values, **asked.get(device.index, {})}
        return Sample(now, reading(rows))

    def _ask_nvml(self, devices: list[CudaDevice]) -> Mapping[int, dict[str, float]]:
        """NVML's columns for each device; empty after NVML was given up."""
        if self._no_nvml is not None:
            return {}
        try:
            if self._nvml is None:
                self._open_nvml()
            nvml, caller = self._nvml, self._caller
            assert nvml is not None
            assert caller is not None
            answers = caller.call(lambda: nvml.read(devices), wait_s=NVML_WAIT_S)
            if {device.index for device in devices} != self._described:
                self._facts["accelerators"] = caller.call(lambda: nvml.facts(devices), wait_s=NVML_WAIT_S)
                self._described = {device.index for device in devices}
            self._take_notes(nvml)
            return answers
        except ImportError:
            self._give_up(f"nvidia-ml-py is not installed ({install('gpu')})")
        except NoAnswerError:
            self._give_up(f"the driver did not answer within {NVML_WAIT_S:g} s")
        except Exception as error:
            if self._nvml is None or not isinstance(error, self._nvml.library.NVMLError):
                raise
            self._give_up(f"NVML reports: {error}")
        return {}

    def _open_nvml(self) -> None:
        import pynvml

        self._caller = BoundedCaller("steadytrain-nvml")
        self._nvml = nvml = NvmlProbe(pynvml)
        self._caller.call(nvml.open, wait_s=NVML_WAIT_S)

    def _give_up(self, why: str) -> None:
        self._no_nvml = why
        self.notes.append(f"temperature, power, clocks and errors of GPUs are not recorded: {why}")
        self._facts.setdefault("accelerators", None)

    def _take_notes(self, nvml: NvmlProbe) -> None:
        while nvml.notes:
            self.notes.append(nvml.notes.pop(0))

    def _close_nvml(self) -> None:
        if self._caller is None or self._nvml is None:
            return
        try:
            self._caller.call(self._nvml.close, wait_s=CLOSE_WAIT_S)
        except NoAnswerError:
            pass
        except Exception as error:
            self.notes.append(f"NVML was not closed ({error})")
        self._caller.close(wait_s=CLOSE_WAIT_S)


def reading(rows: Mapping[str, Mapping[str, float]]) -> Reading:
    """The table of these rows with all columns; NaN if a row lacks a column."""
    values = [[row.get(column, math.nan) for column in COLUMNS] for row in rows.values()]
    return Reading(TABLE, tuple(rows), tuple(COLUMNS), np.array(values, np.float32).reshape(len(rows), len(COLUMNS)))


_samplers: weakref.WeakSet[MachineSampler] = weakref.WeakSet()
_held: list[threading.Lock] = []
_registered = False


def _pause_at_fork(sampler: MachineSampler) -> None:
    """Prevent a fork during a reading: the child would inherit the driver's locks in their current state."""
    global _registered
    _samplers.add(sampler)
    if not _registered:
        _registered = True
        os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)


def _before_fork() -> None:
    for sampler in list(_samplers):
        if sampler._reading.acquire(timeout=FORK_WAIT_S):
            _held.append(sampler._reading)


def _after_fork() -> None:
    while _held:
        _held.pop().release()
