"""The machine: this host as it is, other hosts and GPUs as their files and libraries tell, the thread's manners."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from nvml_library import (
    DRIVER_NOT_LOADED,
    GPU_IS_LOST,
    NOT_AVAILABLE,
    FakeBoard,
    FakeLibrary,
    use,
    whole_board,
)
from steadytrain.capture.hooks.fail_open import Guard
from steadytrain.capture.machine import COLUMNS, MachineSampler, nvml, sampler
from steadytrain.capture.machine.allocator import CudaDevice, allocator_values, devices_in_use
from steadytrain.capture.machine.host import HostProbe, memory_limit
from steadytrain.capture.machine.kernel_log import KernelLog
from steadytrain.capture.machine.machine_columns import ACCELERATOR_COLUMNS, HOST_COLUMNS
from steadytrain.capture.machine.nvml import NvmlProbe
from waiting import until

MIB = 1 << 20


def cells(sample: Any, row: str) -> dict[str, float]:
    """The cells of a row that were measured."""
    values = sample.reading.values[sample.reading.rows.index(row)]
    return {name: float(value) for name, value in zip(sample.reading.columns, values, strict=True) if value == value}


# -- the host ----------------------------------------------------------------------------------------------------------


def write_files(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def test_this_host(tmp_path: Path) -> None:
    probe = HostProbe(tmp_path / "not" / "there yet")
    before = probe.read()
    ballast = bytearray(os.urandom(64 * MIB))
    after = probe.read()
    assert 50 * MIB < after["process_memory_bytes"] - before["process_memory_bytes"] < 200 * MIB
    assert after["process_memory_peak_bytes"] >= after["process_memory_bytes"] - MIB
    assert 0 < after["available_memory_bytes"] <= probe.facts()["memory_bytes"]
    assert after["disk_free_bytes"] > 0
    assert 0.0 <= after["cpu_busy_share"] <= 1.0
    assert after["process_cpu_cores"] > 0.0
    assert "cpu_busy_share" not in before, "nothing is known of the time before the first reading"
    assert probe.facts()["cores"] == os.cpu_count()
    assert set(after) <= set(HOST_COLUMNS)
    del ballast


def test_what_a_host_does_not_tell_is_absent(tmp_path: Path) -> None:
    probe = HostProbe(tmp_path, proc=tmp_path / "proc", control_groups=tmp_path / "cgroup")
    probe.read()
    assert set(probe.read()) == {"disk_free_bytes", "process_cpu_cores"}
    assert probe.facts()["memory_bytes"] is None


def test_a_host_without_swap_has_no_swap_in_use(tmp_path: Path) -> None:
    write_files(tmp_path, {"meminfo": "MemTotal: 100 kB\nMemAvailable: 50 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n"})
    probe = HostProbe(tmp_path, proc=tmp_path)
    assert "swap_used_bytes" not in probe.read()
    write_files(tmp_path, {"meminfo": "MemTotal: 100 kB\nSwapTotal: 30 kB\nSwapFree: 10 kB\n"})
    assert probe.read()["swap_used_bytes"] == 20 * 1024


def test_the_busy_share_is_that_since_the_last_reading(tmp_path: Path) -> None:
    probe = HostProbe(tmp_path, proc=tmp_path)
    write_files(tmp_path, {"stat": "cpu  100 0 50 800 50 0 0 0 30 0\ncpu0 1 2\n"})
    assert "cpu_busy_share" not in probe.read()
    write_files(tmp_path, {"stat": "cpu  160 0 60 820 60 0 0 0 90 0\ncpu0 1 2\n"})
    assert probe.read()["cpu_busy_share"] == pytest.approx(0.7)
    assert "cpu_busy_share" not in probe.read(), "no time has passed"


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({}, None),
        ({"proc/self/cgroup": "0::/job/task\n"}, None),
        ({"proc/self/cgroup": "0::/job\n", "cgroup/job/memory.max": "max\n"}, None),
        (
            {
                "proc/self/cgroup": "0::/job/task\n",
                "cgroup/job/task/memory.max": "3000\n",
                "cgroup/job/task/memory.current": "1000\n",
                "cgroup/job/memory.max": "2000\n",
                "cgroup/job/memory.current": "1500\n",
            },
            (2000.0, 1500.0),
        ),
        (
            {"proc/self/cgroup": "0::/../host/path\n", "cgroup/memory.max": "700\n", "cgroup/memory.current": "70\n"},
            (700.0, 70.0),
        ),
        (
            {
                "proc/self/cgroup": "9:cpu:/x\n4:memory:/job\n0::/\n",
                "cgroup/memory/job/memory.limit_in_bytes": "5000\n",
                "cgroup/memory/job/memory.usage_in_bytes": "100\n",
                "cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            },
            (5000.0, 100.0),
        ),
    ],
    ids=["no groups", "no files", "unlimited", "version 2, parent is tighter", "container", "version 1"],
)
def test_memory_limits_of_control_groups(
    tmp_path: Path, files: dict[str, str], limit: tuple[float, float] | None
) -> None:
    write_files(tmp_path, files)
    assert memory_limit(tmp_path / "proc", tmp_path / "cgroup") == limit


# -- the thread --------------------------------------------------------------------------------------------------------


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[..., MachineSampler]]:
    made: list[MachineSampler] = []

    def start(every_s: float = 0.01, tell: Callable[[str], None] = print) -> MachineSampler:
        made.append(MachineSampler(tmp_path, every_s=every_s, guard=Guard(tell)))
        made[-1].start()
        return made[-1]

    yield start
    for one in made:
        one.close()
    until(lambda: not any(thread.name.startswith("steadytrain") for thread in threading.enumerate()))


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


# -- torch's allocator -------------------------------------------------------------------------------------------------


def properties(name: str = "NVIDIA H200", uuid: str = "1111", bus: int | None = None) -> Any:
    address = {} if bus is None else {"pci_domain_id": 0, "pci_bus_id": bus, "pci_device_id": 0}
    return SimpleNamespace(name=name, uuid=uuid, **address)


def statistics(allocated: int, reserved: int) -> dict[str, int]:
    return {
        "allocated_bytes.all.current": allocated,
        "allocated_bytes.all.peak": 2 * allocated,
        "reserved_bytes.all.current": reserved,
        "reserved_bytes.all.peak": reserved,
        "active_bytes.all.current": allocated + 1,
        "num_alloc_retries": 4,
        "num_ooms": 1,
    }


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Lets ``torch.cuda`` tell of GPUs: the properties and statistics of each."""

    def pretend(*gpus: tuple[Any, dict[str, int] | None]) -> None:
        def stats(index: int) -> dict[str, int]:
            known = gpus[index][1]
            if known is None:
                raise RuntimeError("this allocator keeps no statistics")
            return known

        monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: len(gpus))
        monkeypatch.setattr(torch.cuda, "memory_stats", stats)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: gpus[index][0])

    return pretend


def test_no_gpu_is_asked_before_the_script_uses_one() -> None:
    assert not torch.cuda.is_initialized()
    assert devices_in_use() == []
    assert not torch.cuda.is_initialized()


def test_gpus_that_only_other_ranks_use_have_no_row(cuda: Callable[..., None]) -> None:
    cuda((properties(uuid="1111"), statistics(0, 0)), (properties(uuid="2222", bus=0x65), statistics(100, 300)))
    (device,) = devices_in_use()
    assert (device.row, device.uuid, device.bus_id) == ("cuda:1", "2222", "00000000:65:00.0")
    assert device.values == {
        "allocated_bytes": 100,
        "allocated_peak_bytes": 200,
        "reserved_bytes": 300,
        "active_bytes": 101,
        "unused_reserved_bytes": 200,
        "allocation_retries": 4,
        "out_of_memory_errors": 1,
    }


def test_an_allocator_without_statistics(cuda: Callable[..., None]) -> None:
    cuda((properties(), None))
    (device,) = devices_in_use()
    assert device.values == {}
    assert allocator_values({"num_ooms": 2}) == {"out_of_memory_errors": 2}


# -- NVML --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def probe(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., NvmlProbe]]:
    """A probe on a library; at its end everything it has opened must be closed."""
    import pynvml

    used: list[tuple[NvmlProbe, FakeLibrary]] = []

    def make(library: FakeLibrary) -> NvmlProbe:
        made = NvmlProbe(pynvml)
        used.append((made, use(monkeypatch, library)))
        made.open()
        return made

    yield make
    for made, library in used:
        made.close()
        made.close()
        assert (library.opened, library.open_sets) == (0, 0)


GPU = CudaDevice(0, "NVIDIA H200", "1111", None)


def test_a_gpu_that_tells_everything(probe: Callable[..., NvmlProbe]) -> None:
    values = probe(FakeLibrary(whole_board(xids=[79]))).read([GPU])[0]
    assert values == {
        "memory_total_bytes": 150e9,
        "memory_used_bytes": 100e9,
        "busy_share": 0.97,
        "memory_busy_share": 0.41,
        "temperature_c": 61,
        "memory_temperature_c": 70,
        "power_w": 650.5,
        "power_limit_w": 700,
        "sm_clock_mhz": 1980,
        "memory_clock_mhz": 3201,
        "slowed_by_power": 1,
        "slowed_by_heat": 0,
        "slowed_by_hardware": 0,
        "ecc_corrected": 3,
        "ecc_uncorrected": 0,
        "ecc_corrected_lifetime": 12,
        "ecc_uncorrected_lifetime": 1,
        "remapped_rows": 3,
        "remapping_pending": 1,
        "remapping_failed": 0,
        "pcie_replays": 5,
        "nvlink_errors": 10,
        "xid_errors": 1,
        "xid_last": 79,
    }
    assert set(values) <= set(ACCELERATOR_COLUMNS)


def test_a_gpu_that_supports_little_has_little(probe: Callable[..., NvmlProbe]) -> None:
    board = FakeBoard(
        "GPU-1111",
        gives_events=False,
        answers={
            "nvmlDeviceGetMemoryInfo": (24_000, NOT_AVAILABLE),
            "nvmlDeviceGetTemperature": {0: 45},
            "nvmlDeviceGetClockInfo": {1: 1410},
            "nvmlDeviceGetCurrentClocksThrottleReasons": 0x40 | 0x08,
            "nvmlDeviceGetRetiredPages": {0: 2, 1: 1},
            "nvmlDeviceGetFieldValues": {},
        },
    )
    library = FakeLibrary(board, missing=("nvmlDeviceGetTemperatureV", "nvmlDeviceGetCurrentClocksEventReasons"))
    values = probe(library).read([GPU])[0]
    for absent in ("xid_errors", "xid_last"):  # there only where this process may read the kernel's log
        values.pop(absent, None)
    pages = values.pop("retired_pages")
    assert pages >= 3  # the binding asks for more room than there are pages
    assert values == {
        "memory_total_bytes": 24_000,
        "temperature_c": 45,
        "sm_clock_mhz": 1410,
        "slowed_by_power": 0,
        "slowed_by_heat": 1,
        "slowed_by_hardware": 1,
    }


def test_a_gpu_that_is_lost_is_told_once(probe: Callable[..., NvmlProbe]) -> None:
    board = whole_board()
    asked = probe(FakeLibrary(board))
    assert asked.read([GPU])[0]["temperature_c"] == 61
    board.answers, board.status = {}, GPU_IS_LOST
    assert set(asked.read([GPU])[0]) == {"xid_errors"}
    asked.read([GPU])
    assert asked.notes == ["NVML says of a GPU in use: GPU is lost"]


def test_xid_errors_add_up(probe: Callable[..., NvmlProbe]) -> None:
    board = whole_board()
    asked = probe(FakeLibrary(board))
    first = asked.read([GPU])[0]
    assert first["xid_errors"] == 0
    assert "xid_last" not in first
    board.xids += [13, 48]
    assert (asked.read([GPU])[0]["xid_errors"], asked.read([GPU])[0]["xid_last"]) == (2, 48)
    board.xids += [79]
    assert asked.read([GPU])[0]["xid_errors"] == 3


def test_xid_errors_from_the_kernels_log_where_the_driver_gives_no_events(
    probe: Callable[..., NvmlProbe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "kmsg"
    log.write_text("6,1,1,-;NVRM: Xid (PCI:0000:65:00): 31, of an earlier run\n")
    monkeypatch.setattr(nvml, "KernelLog", lambda: KernelLog(log))
    asked = probe(FakeLibrary(whole_board(gives_events=False)))
    assert asked.read([GPU])[0]["xid_errors"] == 0
    with log.open("a") as file:
        file.write("6,2,2,-;usb 1-1: new device\n")
        file.write("6,3,3,-;NVRM: Xid (PCI:0000:65:00): 79, pid=12, GPU has fallen off the bus.\n")
        file.write("6,4,4,-;NVRM: Xid (PCI:0000:b1:00): 48, pid=12, of another GPU\n")
    values = asked.read([GPU])[0]
    assert (values["xid_errors"], values["xid_last"]) == (1, 79)
    assert asked.facts([GPU])["gpus"][0]["xid_from"] == "kernel log"


def test_xid_errors_are_absent_where_nobody_tells_of_them(
    probe: Callable[..., NvmlProbe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvml, "KernelLog", lambda: KernelLog(tmp_path / "not there"))
    values = probe(FakeLibrary(whole_board(gives_events=False))).read([GPU])[0]
    assert "xid_errors" not in values
    assert values["temperature_c"] == 61


def test_gpus_are_told_apart_by_what_they_are_and_not_by_their_number(probe: Callable[..., NvmlProbe]) -> None:
    """CUDA_VISIBLE_DEVICES=1,0: what torch counts as 0 is the library's 1."""
    asked = probe(
        FakeLibrary(
            whole_board(uuid="GPU-1111", answers={"nvmlDeviceGetTemperatureV": 50}),
            whole_board(uuid="GPU-2222", bus_id="00000000:B1:00.0", answers={"nvmlDeviceGetTemperatureV": 70}),
        )
    )
    devices = [CudaDevice(0, "", "2222", None), CudaDevice(1, "", "1111", None), CudaDevice(2, "", "3333", None)]
    values = asked.read(devices)
    assert [values[index].get("temperature_c") for index in range(3)] == [70, 50, None]
    assert values[2] == {}
    assert asked.notes == ["cuda:2 is not known to NVML: its temperature, power and errors are absent"]


def test_a_gpu_is_found_by_its_address_where_its_uuid_is_not_known(probe: Callable[..., NvmlProbe]) -> None:
    asked = probe(FakeLibrary(whole_board(uuid="GPU-1111", bus_id="00000000:65:00.0")))
    assert asked.read([CudaDevice(0, "", None, "00000000:65:00.0")])[0]["temperature_c"] == 61


def test_a_mig_instance_has_memory_of_its_own_and_the_boards_temperature(probe: Callable[..., NvmlProbe]) -> None:
    board = whole_board(uuid="GPU-1111", answers={"nvmlDeviceGetMigMode": (1, 1)}, xids=[79])
    instance = FakeBoard("MIG-9999", parent=board, answers={"nvmlDeviceGetMemoryInfo": (20_000, 5_000)})
    asked = probe(FakeLibrary(board, instance))
    device = CudaDevice(0, "", "9999", None)
    values = asked.read([device])[0]
    assert (values["memory_total_bytes"], values["memory_used_bytes"]) == (20_000, 5_000)
    assert (values["temperature_c"], values["power_w"], values["xid_last"]) == (61, 650.5, 79)
    assert "busy_share" not in values, "the board's would be that of all instances"
    assert asked.facts([device])["gpus"][0]["instance_of_a_board"] is True


@pytest.mark.parametrize("visible", ["MIG-9999", ""])
def test_a_mig_instance_that_cuda_calls_by_its_board(
    visible: str, probe: Callable[..., NvmlProbe], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    board = whole_board(uuid="GPU-1111", answers={"nvmlDeviceGetMigMode": (1, 1)})
    instance = FakeBoard("MIG-9999", parent=board, answers={"nvmlDeviceGetMemoryInfo": (20_000, 5_000)})
    asked = probe(FakeLibrary(board, instance))
    values = asked.read([GPU])[0]
    assert values.get("memory_total_bytes") == (20_000 if visible else None)
    assert values["temperature_c"] == 61
    assert len(asked.notes) == (0 if visible else 1)


def test_facts_of_gpus(probe: Callable[..., NvmlProbe]) -> None:
    assert probe(FakeLibrary(whole_board())).facts([GPU]) == {
        "driver": "570.86.15",
        "nvml": "12.570.86.15",
        "cuda_of_driver": "12.8",
        "gpus": [
            {
                "row": "cuda:0",
                "name": "NVIDIA H200",
                "bus": "00000000:65:00.0",
                "instance_of_a_board": False,
                "memory_bytes": 150e9,
                "ecc": True,
                "xid_from": "events",
            }
        ],
    }


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
    assert "not recorded: NVML says: Driver Not Loaded" in note
    assert cells(machine.recent()[-1], "cuda:0")["allocated_bytes"] == 100


def test_without_the_binding_there_are_the_allocators_numbers_and_a_note(
    started: Callable[..., MachineSampler], cuda: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    cuda((properties(), statistics(100, 300)))
    machine = started()
    until(lambda: len(machine.recent()) >= 2)
    (note,) = machine.notes
    assert "steadytrain[gpu]" in note
    assert cells(machine.recent()[-1], "cuda:0")["allocated_bytes"] == 100


# -- real GPUs ---------------------------------------------------------------------------------------------------------


@pytest.mark.gpu
def test_a_real_gpu(started: Callable[..., MachineSampler]) -> None:
    held = torch.ones(64 * MIB, device="cuda")
    torch.cuda.synchronize()
    machine = started(every_s=0.05)
    until(lambda: any("cuda:0" in sample.reading.rows for sample in machine.recent()))
    until(lambda: bool(machine.facts.get("accelerators")))
    assert not machine.notes
    gpu = cells(machine.recent()[-1], "cuda:0")
    assert gpu["allocated_bytes"] >= 256 * MIB
    assert gpu["memory_used_bytes"] >= gpu["reserved_bytes"]
    assert gpu["memory_total_bytes"] == pytest.approx(torch.cuda.get_device_properties(0).total_memory, rel=0.1)
    assert 10 < gpu["temperature_c"] < 110
    assert 0 < gpu["power_w"] < 2 * gpu["power_limit_w"]
    assert gpu["sm_clock_mhz"] > 0
    del held


@pytest.mark.gpu
def test_a_real_gpu_is_not_synchronised(started: Callable[..., MachineSampler]) -> None:
    machine = started(every_s=0.01)
    done = torch.cuda.Event()
    torch.cuda._sleep(2_000_000_000)
    done.record()
    until(lambda: sum("cuda:0" in sample.reading.rows for sample in machine.recent()) >= 2 or done.query())
    assert not done.query(), "readings went on while the GPU was busy"
    torch.cuda.synchronize()


def test_every_column_says_what_it_means() -> None:
    assert len(set(HOST_COLUMNS) & set(ACCELERATOR_COLUMNS)) == 0
    assert all(len(meaning) > 10 for meaning in COLUMNS.values())


def test_a_reading_is_absent_where_a_row_lacks_a_column() -> None:
    reading = sampler.reading({"host": {}, "cuda:0": {"power_w": 0.0}})
    assert (reading.table, reading.rows, reading.columns) == ("machine", ("host", "cuda:0"), tuple(COLUMNS))
    assert reading.values.dtype == np.float32
    assert np.isfinite(reading.values).sum() == 1
    assert reading.values[1, reading.columns.index("power_w")] == 0.0
