"""The thread that reads the machine: its start, its end, its errors, and drivers that hang."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from machine_fixtures import cells, properties, statistics

from nvml_library import (
    DRIVER_NOT_LOADED,
    FakeLibrary,
    use,
    whole_board,
)
from steadytrain.capture.hooks.fail_open import Guard
from steadytrain.capture.machine import COLUMNS, MachineSampler, sampler
from steadytrain.capture.machine.machine_columns import ACCELERATOR_COLUMNS, HOST_COLUMNS
from waiting import until

# -- the thread --------------------------------------------------------------------------------------------------------


def test_readings_of_a_host_without_gpu(started: Callable[..., MachineSampler]) -> None:
    machine = started()
    until(lambda: len(machine.recent()) >= 3)
    taken = machine.take()
    assert len(taken) >= 3
    assert [sample.time for sample in taken] == sorted(sample.time for sample in taken)
    assert taken[0].reading.rows == ("host",)
    assert taken[0].reading.columns == tuple(COLUMNS)
    assert taken[0].reading.values.shape == (1, len(COLUMNS))
    measured = cells(taken[-1], "host")
    assert set(measured) <= set(HOST_COLUMNS)
    assert not set(measured) & set(ACCELERATOR_COLUMNS), "what is not there is absent, not zero"
    assert machine.facts["host"]["cores"] == os.cpu_count()
    assert "accelerators" not in machine.facts
    assert not machine.notes


def test_closing_ends_the_thread_whatever_the_cadence(started: Callable[..., MachineSampler]) -> None:
    machine = started(every_s=3600.0)
    machine.start()
    assert [thread.name for thread in threading.enumerate()].count("steadytrain-machine") == 1
    until(lambda: len(machine.recent()) == 1)
    machine.close()
    machine.close()
    assert "steadytrain-machine" not in [thread.name for thread in threading.enumerate()]
    assert len(machine.take()) == 1
    assert machine.take() == []


def test_readings_that_nobody_takes_are_bounded(
    started: Callable[..., MachineSampler], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampler, "SAMPLES_MAX", 3)
    machine = started(every_s=0.001)
    until(lambda: bool(machine.recent()))
    first = machine.recent()[0].time
    until(lambda: len(machine.recent()) == 3 and machine.recent()[0].time > first)
    assert len(machine.take()) <= 3


def test_an_error_of_ours_is_told_once_and_ends_the_readings(
    started: Callable[..., MachineSampler], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(path: Any) -> Any:
        raise ValueError("planted")

    monkeypatch.setattr(Guard, "reraise", False)
    monkeypatch.setattr("shutil.disk_usage", broken)
    told: list[str] = []
    machine = started(tell=told.append)
    until(lambda: bool(told))
    until(lambda: "steadytrain-machine" not in [thread.name for thread in threading.enumerate()])
    (line,) = told
    assert "reading the machine failed (ValueError: planted)" in line
    assert machine.take() == []


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")  # Python 3.12 says so of any thread
def test_a_forked_child_has_no_thread_and_an_unlocked_reading(
    started: Callable[..., MachineSampler], monkeypatch: pytest.MonkeyPatch
) -> None:
    from steadytrain.capture.machine import host

    def slow(folder: Path) -> float:
        time.sleep(0.05)
        return 1.0

    monkeypatch.setattr(host, "_free_bytes", slow)
    machine = started(every_s=0.001)
    until(lambda: machine._reading.locked())
    child = os.fork()
    if child == 0:
        alone = [thread.name for thread in threading.enumerate()] == [threading.main_thread().name]
        machine.close()
        os._exit(0 if alone and not machine._reading.locked() else 1)
    assert os.waitpid(child, 0)[1] == 0
    count = len(machine.recent())
    until(lambda: len(machine.recent()) > count)  # it goes on in the parent


EXITS = """
import sys, threading
from pathlib import Path
from steadytrain.capture.hooks.fail_open import Guard
from steadytrain.capture.machine import MachineSampler
machine = MachineSampler(Path(sys.argv[1]), every_s=0.001, guard=Guard(print))
machine.start()
while not machine.recent():
    pass
print("done")
"""


def test_a_process_ends_although_nobody_closed_the_sampler(tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", EXITS, str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")


# -- the thread and its GPUs -------------------------------------------------------------------------------------------


def test_rows_of_gpus_join_those_of_the_host(
    started: Callable[..., MachineSampler], cuda: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    library = use(monkeypatch, FakeLibrary(whole_board(uuid="GPU-2222")))
    cuda((properties(uuid="1111"), statistics(0, 0)), (properties(uuid="2222"), statistics(100, 300)))
    machine = started()
    until(lambda: bool(machine.facts.get("accelerators")) and bool(machine.recent()))
    (sample, *_) = machine.take()
    assert sample.reading.rows == ("host", "cuda:1")
    gpu = cells(sample, "cuda:1")
    assert (gpu["allocated_bytes"], gpu["unused_reserved_bytes"], gpu["temperature_c"]) == (100, 200, 61)
    assert not set(gpu) & set(HOST_COLUMNS)
    assert machine.facts["accelerators"]["gpus"][0]["row"] == "cuda:1"
    machine.close()
    assert (library.opened, library.open_sets) == (0, 0)


def test_a_driver_that_hangs_is_given_up_and_the_host_is_read_on(
    started: Callable[..., MachineSampler], cuda: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampler, "NVML_WAIT_S", 0.05)
    library = FakeLibrary(whole_board())
    library.hangs = threading.Event()
    use(monkeypatch, library)
    cuda((properties(uuid="1111"), statistics(100, 300)))
    machine = started()
    until(lambda: len(machine.recent()) >= 3)
    assert machine.notes == [
        "temperature, power, clocks and errors of GPUs are not recorded: the driver did not answer within 0.05 s"
    ]
    assert len(library.calls) == 1
    last = machine.recent()[-1]
    assert cells(last, "cuda:0")["allocated_bytes"] == 100
    assert "temperature_c" not in cells(last, "cuda:0")
    assert cells(last, "host")["process_memory_bytes"] > 0
    machine.close()
    assert "steadytrain-machine" not in [thread.name for thread in threading.enumerate()]
    library.hangs.set()


def test_a_driver_that_is_not_loaded(
    started: Callable[..., MachineSampler], cuda: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, FakeLibrary(init_status=DRIVER_NOT_LOADED))
    cuda((properties(), statistics(100, 300)))
    machine = started()
    until(lambda: len(machine.recent()) >= 2)
    (note,) = machine.notes
    assert "not recorded: NVML reports: Driver Not Loaded" in note
    assert cells(machine.recent()[-1], "cuda:0")["allocated_bytes"] == 100


def test_without_the_binding_there_are_the_allocators_numbers_and_a_note(
    started: Callable[..., MachineSampler], cuda: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    cuda((properties(), statistics(100, 300)))
    machine = started()
    until(lambda: len(machine.recent()) >= 2)
    (note,) = machine.notes
    assert "pip install 'nvidia-ml-py>=" in note
    assert cells(machine.recent()[-1], "cuda:0")["allocated_bytes"] == 100
