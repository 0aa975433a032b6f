"""Which devices recorded steps can run on, how a launched process is put there, and what their replays show."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from steadytrain.core.errors import UsageError
from steadytrain.replay.devices import Device, as_recorded, devices_of, on
from steadytrain.replay.hardware_verdict import OnDevice, judge_devices
from steadytrain.replay.verdict import Difference, Replayed, document, lines

EXACT = Replayed(5, 7, 3, None, False, True)
ON_CPU = {"model": {"devices": ["cpu"]}, "device": {"torch_threads": 3, "gpus": []}}
BOARDS = """0, NVIDIA H100, GPU-aa, 1650001, 00000000:1B:00.0
1, NVIDIA H100, GPU-bb, [N/A], 00000000:43:00.0
2, NVIDIA T4, GPU-cc, 7, 00000000:61:00.0
"""


def gives(value: str, *, symptom: bool = False) -> Replayed:
    return replace(EXACT, first_difference=Difference(6, "forward", "loss", "a", value), symptom=symptom)


def on_gpu(name: str = "NVIDIA H100", *devices: str) -> dict[str, Any]:
    return {"model": {"devices": list(devices or ("cuda:0",))}, "device": {"gpus": [{"name": name}]}}


@pytest.fixture
def boards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with three GPUs of two kinds, as ``nvidia-smi`` lists them."""
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{BOARDS}END\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")


def test_cores_are_tried_in_groups_with_as_many_threads_as_were_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {*range(18), 40})
    found = devices_of(ON_CPU)
    assert sorted(core for one in found for core in one.cores) == [*range(18), 40]
    assert [one.name for one in found][:2] == ["cores 0 to 1", "cores 2 to 3"]
    assert found[-1].name == "cores 16, 17, 40"
    assert {one.variables["OMP_NUM_THREADS"] for one in found} == {"3"}


def test_boards_of_the_recorded_kind(boards: None) -> None:
    first, second = devices_of(on_gpu())
    assert (first.name, first.serial, first.slot, dict(first.variables)) == (
        "GPU 0",
        "1650001",
        "00000000:1B:00.0",
        {"CUDA_VISIBLE_DEVICES": "GPU-aa"},
    )
    assert (second.name, second.serial) == ("GPU 1", None)


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({}, "does not say on which device"),
        (on_gpu("NVIDIA T4"), "was on a NVIDIA T4, and this machine has: NVIDIA H100, NVIDIA H100, NVIDIA T4"),
        (on_gpu("NVIDIA H100", "cuda:0", "cuda:1"), "on cuda:0, cuda:1; only one GPU"),
        (on_gpu("NVIDIA H100", "mps:0"), "on mps:0"),
    ],
    ids=["nothing recorded", "one of its kind", "two used", "no CUDA"],
)
def test_what_cannot_be_compared(boards: None, environment: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        devices_of(environment)


def test_a_machine_without_another_device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3})
    with pytest.raises(UsageError, match="--devices: this process can choose between 1 cores"):
        devices_of(ON_CPU)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="nvidia-smi, which lists the GPUs, did not run"):
        devices_of(on_gpu())


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the system has no affinity")
def test_a_launched_process_gets_the_cores_of_its_device() -> None:
    before = os.sched_getaffinity(0)
    core = max(before)
    with on(Device("core", "", variables={"A": "1"}, cores=(core,))) as variables:
        asked = [sys.executable, "-c", "import os; print(os.sched_getaffinity(0))"]
        assert subprocess.run(asked, stdout=subprocess.PIPE, text=True, check=True).stdout.strip() == f"{{{core}}}"
        assert variables == {"A": "1"}
    assert os.sched_getaffinity(0) == before
    with on(None) as variables:
        assert variables == {}


def test_the_choice_of_a_device_is_no_changed_environment() -> None:
    recorded = {"environment": {"CUDA_VISIBLE_DEVICES": "0", "A": "1"}}
    present = {"environment": {"CUDA_VISIBLE_DEVICES": "GPU-aa", "OMP_NUM_THREADS": "3", "A": "2"}}
    assert as_recorded(present, recorded) == {"environment": {"CUDA_VISIBLE_DEVICES": "0", "A": "2"}}
    assert as_recorded({}, recorded) == {}


SAME, OTHER = [EXACT], [gives("b"), gives("b")]


@pytest.mark.parametrize(
    ("replays", "kind", "suspects"),
    [
        ({"0": SAME, "1": SAME}, None, ()),
        ({"0": OTHER, "1": OTHER}, "transient", ()),
        ({"0": SAME, "1": OTHER, "2": OTHER}, "persistent-device", ("0",)),
        ({"0": SAME, "1": OTHER, "2": SAME}, "persistent-device", ("1",)),
        ({"0": SAME, "1": OTHER}, "unknown", ()),
        ({"0": [replace(EXACT, symptom=True)], "1": OTHER}, "persistent-device", ("0",)),
        ({"0": SAME, "1": [gives("b", symptom=True)] * 2}, "persistent-device", ("1",)),
        ({"0": SAME, "1": SAME, "2": [gives("b"), gives("c")]}, "persistent-device", ("2",)),
        ({"0": SAME, "1": [gives("b"), gives("c")]}, "unknown", ()),
        ({"0": [gives("b"), gives("c")], "1": [gives("d"), gives("e")]}, "unknown", ()),
        ({"0": OTHER, "1": [gives("c")] * 2, "2": SAME}, "unknown", ()),
    ],
    ids=str,
)
def test_the_verdict(replays: dict[str, list[Replayed]], kind: str | None, suspects: tuple[str, ...]) -> None:
    judgement, found = judge_devices(replays, ())
    assert (judgement.kind, found) == (kind, suspects)
    assert judgement.why


def test_what_changed_since_comes_before_a_transient_fault() -> None:
    judgement, _ = judge_devices({"0": OTHER, "1": OTHER}, ["torch: 2.12 then, 2.13 now"])
    assert judgement.kind == "environment-changed"


def test_a_device_is_shown_with_its_serial_and_slot() -> None:
    board = Device("GPU 1", "NVIDIA H100", "1650001", "00000000:43:00.0")
    judgement, suspects = judge_devices({"GPU 0": SAME, "GPU 1": OTHER, "GPU 2": SAME}, ())
    shown = OnDevice.of(board, OTHER, looked_for=True, suspect=board.name in suspects)
    said = lines(document("incident", [*SAME, *OTHER], judgement, devices=[shown.to_json()]))
    assert any(line.split()[:2] == ["kind", "persistent"] for line in said)
    (row,) = [line for line in said if "GPU 1 " in line and "serial" in line]
    assert "first different at step 6" in row
    assert "computes wrong [NVIDIA H100, serial 1650001, 00000000:43:00.0]" in row
