"""What is kept when a script runs out of memory, or its ranks lose each other."""

from __future__ import annotations

import hashlib
import json
import os
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import steadytrain
from scripts import Ended, Started, bare, recorded, watched, write
from steadytrain.capture.hooks.fail_open import Guard
from steadytrain.capture.incident.crash import Moment, evidence_of, write_evidence
from steadytrain.capture.incident.crash.errors import MESSAGE_CHARACTERS_MAX
from steadytrain.capture.incident.crash.memory import (
    BLOCKS_MAX,
    TENSORS_MAX,
    TRACE_MAX,
    is_out_of_memory,
    snapshot_facts,
)
from steadytrain.capture.machine.sampler import Sample, reading

TOO_MUCH = 1 << 50
"""Bytes that no machine has."""

TRAINS = """
import sys
import torch

def train(model, optimizer, fails_at):
    for step in range(1, 6):
        optimizer.zero_grad()
        inputs = torch.randn(16, 8)
        if step == fails_at:
            activations = [torch.ones(3_000_000)]
            torch.empty(1 << 50, dtype=torch.uint8)
        model(inputs).pow(2).mean().backward()
        optimizer.step()
        print(step, flush=True)

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
train(model, torch.optim.AdamW(model.parameters()), int(sys.argv[1]))
"""


def document(folder: Path, name: str = "out-of-memory") -> Any:
    return json.loads((folder / "evidence" / f"{name}.json").read_text())


def out_of_memory() -> RuntimeError:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(TOO_MUCH, dtype=torch.uint8)
    return caught.value


def evidence(error: BaseException, folder: Path, **moment: Any) -> dict[str, Any]:
    """The documents as they are read back."""
    at = Moment(created="2026-01-01T00:00:00+00:00", since=0.0, **moment)
    found = evidence_of(error, at, disk=folder)
    write_evidence(folder, found)
    return {name: document(folder, name) for name in found}


def run(folder: Path, *arguments: str, environment: dict[str, str] | None = None) -> Ended:
    return Started(watched(*arguments), folder, environment=environment or {}).end()


@pytest.mark.slow
def test_a_script_that_runs_out_of_memory_leaves_who_held_it(tmp_path: Path) -> None:
    script = write(tmp_path, TRAINS)
    plain, seen = Started(bare(script, "4"), tmp_path).end(), run(tmp_path, script, "4")
    assert (seen.status, seen.out, seen.own) == (plain.status, plain.out, plain.own)
    path = tmp_path / "runs" / "run" / "evidence" / "out-of-memory.json"
    assert f"out of memory on cpu: the evidence is in {path}\n" in seen.told
    assert not seen.warnings
    told = document(tmp_path / "runs" / "run")
    assert (told["schema"], told["step"], told["rank"]) == ("steadytrain.out-of-memory/1", 3, 0)
    assert (told["device"], told["wanted_bytes"]) == ("cpu", TOO_MUCH)
    assert told["error"]["frames"][-1]["code"] == "torch.empty(1 << 50, dtype=torch.uint8)"
    assert [frame["function"] for frame in told["error"]["frames"]] == ["<module>", "train"]
    largest = told["tensors"]["largest"]
    assert (largest[0]["kind"], largest[0]["name"]) == ("variable", "activations in train")
    assert (largest[0]["shape"], largest[0]["size_bytes"]) == ([3_000_000], 12_000_000)
    named = {(tensor["kind"], tensor["name"]) for tensor in largest}
    assert named >= {("parameter", "0.weight"), ("optimizer state", "exp_avg_sq of 0.weight")}
    assert named >= {("steadytrain", "a recorded batch"), ("variable", "inputs in train")}
    assert sum(told["tensors"]["bytes_by_kind"].values()) == told["tensors"]["bytes_by_device"]["cpu"]
    assert told["host"]["process_memory_bytes"] > 12_000_000
    assert told["accelerators"] == []
    assert recorded(tmp_path).ended == "failed"


@pytest.mark.slow
def test_a_script_that_runs_out_of_memory_before_its_first_step(tmp_path: Path) -> None:
    seen = run(tmp_path, write(tmp_path, TRAINS), "1")
    assert seen.status == 1
    assert "no PyTorch training was seen" in seen.told
    assert document(tmp_path / "runs" / "run")["step"] is None
    left = recorded(tmp_path)
    assert (left.ended, left.facts["exit_status"], left.streams()) == ("failed", 1, [])


@pytest.mark.long
@pytest.mark.slow
def test_a_process_that_the_script_started_runs_out_of_memory(tmp_path: Path) -> None:
    write(tmp_path, TRAINS, "child.py")
    starts = "import subprocess, sys\nsys.exit(subprocess.run([sys.executable, 'child.py', '3']).returncode)\n"
    seen = run(tmp_path, write(tmp_path, starts))
    assert seen.status == 1
    assert "out of memory on cpu" in seen.told
    assert document(tmp_path / "runs" / "run")["step"] == 2
    assert recorded(tmp_path).ended == "failed"


@pytest.mark.slow
def test_other_errors_leave_nothing(tmp_path: Path) -> None:
    seen = run(tmp_path, write(tmp_path, TRAINS.replace("torch.empty(1 << 50, dtype=torch.uint8)", "1 / 0")), "4")
    assert seen.status == 1
    assert "ZeroDivisionError" in seen.own
    assert not (tmp_path / "runs" / "run" / "evidence").exists()


def train_out_of_memory(model: nn.Module, optimizer: torch.optim.Optimizer, folder: Path | None = None) -> None:
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    if folder is not None:
        (folder / "evidence").write_text("this is in the way")
    torch.empty(TOO_MUCH, dtype=torch.uint8)


def test_a_watch_inside_a_script_sees_it_too(tmp_path: Path) -> None:
    model = nn.Linear(4, 2**20)  # larger than what other tests may have left in memory
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with (
        pytest.raises(RuntimeError, match="can't allocate"),
        steadytrain.watch(model, optimizer, runs_dir=tmp_path, name="run"),
    ):
        train_out_of_memory(model, optimizer)
    told = document(tmp_path / "run")
    assert ("gradient", "weight") in {(tensor["kind"], tensor["name"]) for tensor in told["tensors"]["largest"]}


def test_a_disk_that_does_not_take_it_is_told_and_the_error_stays_the_scripts_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Guard, "reraise", False)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with (
        pytest.raises(RuntimeError, match="can't allocate"),
        steadytrain.watch(model, optimizer, runs_dir=tmp_path, name="run") as seen,
    ):
        train_out_of_memory(model, optimizer, seen.run_dir)
    assert "warning: keeping evidence of the failure failed (FileExistsError" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("error", "is_one"),
    [
        (MemoryError("Unable to allocate 8.00 PiB for an array"), True),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB. GPU 1 has a total capacity"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes."), True),
        (RuntimeError("shape mismatch"), False),
        (ValueError("CUDA out of memory"), False),
        (KeyboardInterrupt(), False),
        (SystemExit(1), False),
    ],
)
def test_which_errors_are_of_memory(error: BaseException, is_one: bool, tmp_path: Path) -> None:
    assert is_out_of_memory(error) == is_one
    assert ("out-of-memory" in evidence_of(error, Moment(created="", since=0.0), disk=tmp_path)) == is_one


def test_an_error_raised_because_of_one_of_memory_is_one_of_memory(tmp_path: Path) -> None:
    try:
        try:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.50 GiB. GPU 3 has a total capacity")
        except RuntimeError as first:
            raise ValueError("step failed") from first
    except ValueError as error:
        told = evidence(error, tmp_path)["out-of-memory"]
    assert (told["device"], told["wanted_bytes"]) == ("cuda:3", 1_610_612_736)
    assert told["error"]["type"].endswith("OutOfMemoryError")


def test_messages_are_redacted_and_bounded(tmp_path: Path) -> None:
    secret = "hf_" + "a" * 30
    error = MemoryError(f"while loading {secret} " + "x" * 100_000)
    text = evidence(error, tmp_path)["out-of-memory"]["error"]["message"]
    assert secret not in text
    assert len(text) == MESSAGE_CHARACTERS_MAX


def test_only_the_largest_tensors_are_listed_and_views_count_once(tmp_path: Path) -> None:
    error = out_of_memory()
    many = [torch.ones(10_000 + number) for number in range(TENSORS_MAX + 30)]
    view = many[-1][:5]
    tensors = evidence(error, tmp_path)["out-of-memory"]["tensors"]
    assert len(tensors["largest"]) == TENSORS_MAX
    sizes = [tensor["size_bytes"] for tensor in tensors["largest"]]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes.count(many[-1].untyped_storage().nbytes()) == 1
    assert tensors["count"] >= TENSORS_MAX + 30
    del view


def test_tensors_without_memory_of_their_own_do_no_harm(tmp_path: Path) -> None:
    odd = [torch.ones(3, device="meta"), torch.ones(2, 2).to_sparse(), nn.Parameter(torch.ones(2)), torch.ones(0)]
    assert evidence(out_of_memory(), tmp_path)["out-of-memory"]["tensors"]["count"] > 0
    del odd


def test_the_last_readings_of_the_machine_are_in_it(tmp_path: Path) -> None:
    rows = {"host": {"process_memory_bytes": 5.0}, "cuda:0": {"allocated_bytes": 7.0, "power_w": 1.0}}
    samples = [Sample(1.0, reading(rows)), Sample(2.0, reading(rows))]
    told = evidence(out_of_memory(), tmp_path, samples=samples)["out-of-memory"]
    assert told["before"][:2] == [
        {"time": 1.0, "row": "host", "process_memory_bytes": 5.0},
        {"time": 1.0, "row": "cuda:0", "allocated_bytes": 7.0},
    ]
    assert len(told["before"]) == 4


def block(size: int, state: str = "active_allocated", frames: int = 1) -> dict[str, Any]:
    return {"size": size, "state": state, "frames": [{"filename": "a.py", "line": 3, "name": "f"}] * frames}


def test_what_the_allocators_snapshot_tells_of_one_gpu() -> None:
    """The shape is that of ``torch.cuda.memory._snapshot``, as its docstring has it."""
    snapshot = {
        "segments": [
            {"device": 0, "total_size": 60, "blocks": [block(10), block(50, "inactive", frames=0)]},
            {"device": 0, "total_size": 9, "blocks": [block(9, "inactive")]},
            {"device": 1, "total_size": 900, "blocks": [block(900)]},
        ],
        "device_traces": [[{"action": "oom", "size": 70, "frames": []}], []],
    }
    facts = snapshot_facts(snapshot, 0)
    assert (facts["segments"], facts["free_in_segments_bytes"], facts["largest_free_block_bytes"]) == (2, 59, 50)
    assert facts["largest_blocks"][1] == {"size_bytes": 10, "state": "active_allocated", "frames": ["a.py:3 f"]}
    assert facts["last_events"] == [{"action": "oom", "size_bytes": 70, "frames": []}]
    assert snapshot_facts(snapshot, 1)["largest_free_block_bytes"] == 0
    assert snapshot_facts({}, 0)["segments"] == 0


def test_a_long_snapshot_is_cut() -> None:
    many = {"device": 0, "blocks": [block(size, frames=100) for size in range(BLOCKS_MAX + 10)]}
    trace = [{"action": "alloc", "size": number, "frames": []} for number in range(TRACE_MAX + 10)]
    facts = snapshot_facts({"segments": [many], "device_traces": [trace]}, 0)
    assert len(facts["largest_blocks"]) == BLOCKS_MAX
    assert len(facts["last_events"]) == TRACE_MAX
    assert facts["last_events"][-1]["size_bytes"] == TRACE_MAX + 9, "the newest stay"


def test_a_gpu_that_ran_out_tells_what_its_allocator_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = {"allocated_bytes.all.current": 100, "reserved_bytes.all.current": 120, "reserved_bytes.all.peak": 120}
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda index: numbers)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: SimpleNamespace(name="GPU", uuid="1"))
    monkeypatch.setattr(torch.cuda.memory, "_snapshot", lambda: {"segments": [], "device_traces": [[]]})
    monkeypatch.setattr(torch.cuda, "memory_summary", lambda index, abbreviated: "a table")
    error = torch.OutOfMemoryError(
        "CUDA out of memory. Tried to allocate 2.00 MiB. GPU 0 has a total capacity of 1 GiB"
    )
    told = evidence(error, tmp_path)["out-of-memory"]
    assert (told["device"], told["wanted_bytes"]) == ("cuda:0", 2 << 20)
    (gpu,) = told["accelerators"]
    assert (gpu["allocated_bytes"], gpu["unused_reserved_bytes"], gpu["not_held_by_python_bytes"]) == (100, 20, 100)
    assert gpu["summary"] == "a table"


@pytest.mark.gpu
def test_a_real_gpu_that_runs_out(tmp_path: Path) -> None:
    held = torch.ones(64 << 20, device="cuda")
    hidden = nn.Linear(1, 1, device="cuda")(torch.ones(1 << 20, 1, device="cuda")).tanh().exp()
    with pytest.raises(torch.OutOfMemoryError) as caught:
        torch.empty(TOO_MUCH, dtype=torch.uint8, device="cuda")
    told = evidence(caught.value, tmp_path)["out-of-memory"]
    assert (told["device"], told["wanted_bytes"]) == ("cuda:0", TOO_MUCH)
    assert told["tensors"]["largest"][0]["size_bytes"] == held.untyped_storage().nbytes()
    assert told["accelerators"][0]["not_held_by_python_bytes"] >= 4 << 20, "what backward has saved"
    assert told["accelerators"][0]["out_of_memory_errors"] >= 1
    assert "PyTorch CUDA memory summary" in told["accelerators"][0]["summary"]
    del hidden


FAILS_IN_A_COLLECTIVE = """
import os, pathlib
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(1, 2)).sum().backward()
dist.all_reduce(model.weight.grad)
optimizer.step()
pathlib.Path("trace_rank_0").write_bytes(b"pickled by a watchdog")
raise dist.DistBackendError("NCCL error in: NCCLUtils.hpp:275, remote process exited, api_key=abcdefgh12345678")
"""


def one_rank(**more: str) -> dict[str, str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": "0", "WORLD_SIZE": "1", **more}


@pytest.mark.slow
def test_an_error_between_ranks_leaves_what_the_backend_and_the_recorder_tell(tmp_path: Path) -> None:
    prefix = tmp_path / "trace_rank_"
    (tmp_path / "trace_rank_7").write_bytes(b"of an earlier run")
    os.utime(tmp_path / "trace_rank_7", (1.0, 1.0))
    (tmp_path / "trace_rank_x").write_bytes(b"no dump at all")
    environment = one_rank(TORCH_FR_BUFFER_SIZE="50", TORCH_NCCL_DEBUG_INFO_TEMP_FILE=str(prefix))
    seen = run(tmp_path, write(tmp_path, FAILS_IN_A_COLLECTIVE), environment=environment)
    assert "communication between ranks failed: the evidence is in" in seen.told
    told = document(tmp_path / "runs" / "run", "communication")
    assert told["schema"] == "steadytrain.communication/1"
    (error,) = told["errors"]
    assert error["type"].endswith("DistBackendError")
    assert "remote process exited" in error["message"]
    assert "abcdefgh" not in json.dumps(told)
    if hasattr(torch._C._distributed_c10d, "_dump_fr_trace_json"):
        assert "gloo:all_reduce" in [entry["profiling_name"] for entry in told["flight_recorder"]["entries"]]
    (dump,) = told["dumps"]
    assert dump["path"] == str(tmp_path / "trace_rank_0")
    assert dump["sha256"] == hashlib.sha256(b"pickled by a watchdog").hexdigest()
    assert "not copied" in dump["note"]
    assert sorted(path.name for path in (tmp_path / "runs" / "run" / "evidence").iterdir()) == ["communication.json"]


LOSES_ITS_RANK = """
import os, sys
import torch
import torch.distributed as dist
from datetime import timedelta
dist.init_process_group("gloo", timeout=timedelta(seconds=20))
if dist.get_rank() == 1:
    os._exit(3)
dist.all_reduce(torch.ones(2))
"""


@pytest.mark.slow
def test_a_rank_that_is_gone_is_a_failure_between_ranks(tmp_path: Path) -> None:
    script = write(tmp_path, LOSES_ITS_RANK)
    environment = {**one_rank(), "WORLD_SIZE": "2"}
    gone = Started(bare(script), tmp_path, environment={**environment, "RANK": "1"})
    seen = run(tmp_path, script, environment=environment)
    assert gone.end().status == 3
    assert seen.status == 1
    told = document(tmp_path / "runs" / "run", "communication")
    assert told["errors"]
    assert told["environment"]["WORLD_SIZE"] == "2"


AFTER_ANOTHER = """
import torch

def train(steps, fails):
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        model(torch.randn(16, 8)).pow(2).mean().backward()
        optimizer.step()
        if step == fails:
            torch.nn.Embedding(4, 2)(torch.tensor([9]))

train(12, fails=0)
train(3, fails=3)
"""


def test_an_error_after_another_training_has_ended_leaves_evidence(tmp_path: Path) -> None:
    write(tmp_path, AFTER_ANOTHER)
    ended = Started(watched("script.py"), tmp_path).end()
    assert (ended.status, ended.warnings) == (1, [])
    assert (recorded(tmp_path).path / "evidence" / "index-out-of-range.json").exists()
