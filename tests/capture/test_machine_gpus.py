"""GPUs as torch's allocator and NVIDIA's library describe them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from machine_fixtures import MIB, cells, properties, statistics

from nvml_library import (
    GPU_IS_LOST,
    NOT_AVAILABLE,
    FakeBoard,
    FakeLibrary,
    use,
    whole_board,
)
from steadytrain.capture.machine import COLUMNS, MachineSampler, nvml, sampler
from steadytrain.capture.machine.allocator import CudaDevice, allocator_values, devices_in_use
from steadytrain.capture.machine.kernel_log import KernelLog
from steadytrain.capture.machine.machine_columns import ACCELERATOR_COLUMNS, HOST_COLUMNS
from steadytrain.capture.machine.nvml import NvmlProbe
from waiting import until


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
    assert asked.notes == ["NVML reports for a GPU in use: GPU is lost"]


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
                "serial": "1652922012345",
                "uuid": "1111",
                "instance_of_a_board": False,
                "memory_bytes": 150e9,
                "ecc": True,
                "xid_from": "events",
            }
        ],
    }


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
    torch.ones(1, device="cuda")
    machine = started(every_s=0.01)

    def readings() -> int:
        return sum("cuda:0" in sample.reading.rows for sample in machine.recent())

    until(lambda: readings() > 0)  # the first one loads a library
    before, done = readings(), torch.cuda.Event()
    torch.cuda._sleep(4_000_000_000)
    done.record()
    until(lambda: readings() >= before + 2 or done.query())
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
