"""Records of torch's flight recorder: which rank did not call, or called something else, and what reads them."""

from __future__ import annotations

import json
import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from steadytrain.cli.collectives import command
from steadytrain.compare.collectives import Comparison, compare_records
from steadytrain.core.errors import UsageError
from steadytrain.storage.flight_records import ENTRIES_KEPT, read_record, read_records, write_record

Entry = dict[str, Any]


def call(
    seq: int,
    operation: str = "all_reduce",
    *,
    state: str = "completed",
    group: tuple[str, str] = ("0", "default_pg"),
    sizes: Iterable[list[int]] = ((4, 2),),  # type: ignore[assignment]
    dtype: str = "Float",
    line: int = 88,
    p2p: bool = False,
    record: int | None = None,
) -> Entry:
    return {
        "record_id": seq - 1 if record is None else record,
        "pg_id": int(group[0]),
        "process_group": group,
        "collective_seq_id": 0 if p2p else seq,
        "p2p_seq_id": seq if p2p else 0,
        "op_id": seq,
        "profiling_name": f"nccl:{operation}",
        "time_created_ns": 1_790_000_000_000_000_000 + seq * 1_000_000 + int(group[0]) * 10_000_000,
        "input_sizes": [list(size) for size in sizes],
        "input_dtypes": [dtype],
        "output_sizes": [list(size) for size in sizes],
        "output_dtypes": [dtype],
        "state": state,
        "retired": state == "completed",
        "is_p2p": p2p,
        "frames": [
            {"name": "all_reduce", "filename": "/env/site-packages/torch/distributed/distributed_c10d.py", "line": 1},
            {"name": "train", "filename": "/job/train.py", "line": line},
        ],
    }


def trace(entries: list[Entry], groups: dict[str, list[int]]) -> dict[str, Any]:
    return {
        "version": "2.4",
        "pg_config": {
            name: {"name": name, "desc": "default_pg", "ranks": str(ranks)} for name, ranks in groups.items()
        },
        "pg_status": {},
        "entries": entries,
    }


def dump(folder: Path, ranks: dict[int, list[Entry]], groups: dict[str, list[int]] | None = None) -> list[Path]:
    """The files as the watchdogs write them, pickled for even ranks and as JSON for odd ones."""
    known = groups or {"0": sorted(ranks)}
    files = []
    for rank, entries in ranks.items():
        files.append(folder / f"nccl_trace_rank_{rank}")
        data = trace(entries, known)
        files[-1].write_bytes(json.dumps(data).encode() if rank % 2 else pickle.dumps(data))
    return files


def compared(folder: Path, ranks: dict[int, list[Entry]], groups: dict[str, list[int]] | None = None) -> Comparison:
    dump(folder, ranks, groups)
    return compare_records(read_records([folder]))


def done(last: int, **more: Any) -> list[Entry]:
    return [call(seq, **more) for seq in range(1, last + 1)]


def test_the_rank_that_did_not_call_is_named_with_the_line_that_the_others_wait_at(tmp_path: Path) -> None:
    waits = [*done(7), call(8, state="started", line=90)]
    found = compared(tmp_path, {0: waits, 1: waits, 2: done(7), 3: waits})
    (one,) = found.disagreements
    assert (one.kind, one.operation, one.seq, one.ranks, one.waiting) == ("missing", "all_reduce", 8, (2,), (0, 1, 3))
    assert (one.line, one.line_of_ranks) == ("train.py:90", "train.py:88")
    assert one.sentence == (
        "rank 2 did not call all_reduce, call 8 of the default group, which ranks 0, 1, 3 wait in at train.py:90; "
        "its last was all_reduce, call 7 at train.py:88"
    )


def test_a_rank_that_has_enqueued_more_waits_in_the_first_that_one_did_not_call(tmp_path: Path) -> None:
    waits = [*done(7), call(8, state="started", line=90)]
    ahead = [*waits, call(9, state="scheduled", line=95)]
    (one,) = compared(tmp_path, {0: ahead, 1: waits, 2: done(7)}).disagreements
    assert (one.seq, one.ranks, one.waiting, one.line) == (8, (2,), (0, 1), "train.py:90")


def test_a_call_that_has_ended_on_one_rank_was_made_by_all(tmp_path: Path) -> None:
    behind = [*done(7), call(8, state="scheduled")]
    assert compared(tmp_path, {0: done(8), 1: behind, 2: behind}).agrees
    for file in tmp_path.iterdir():
        file.unlink()
    root = [*done(7), call(8, "broadcast")]  # it may be done before the others have come
    waits = [*done(7), call(8, "broadcast", state="started")]
    (one,) = compared(tmp_path, {0: root, 1: waits, 2: done(7)}).disagreements
    assert (one.kind, one.ranks) == ("missing", (2,))


def test_in_a_circle_the_smaller_group_comes_first(tmp_path: Path) -> None:
    pair, whole = ("1", "eval_pair"), ("0", "default_pg")
    common = [call(1, group=whole)]
    in_pair = [*common, call(1, "all_gather", group=pair, state="started", record=2, line=27)]
    in_whole = [*common, call(2, group=whole, state="started", line=28)]
    found = compared(tmp_path, {0: in_pair, 1: in_whole, 2: in_whole}, {"0": [0, 1, 2], "1": [0, 2]})
    assert [one.ranks for one in found.disagreements] == [(2,), (0,)]
    assert found.disagreements[0].line == "train.py:27"


def test_a_rank_without_a_record_is_the_one_that_is_missing(tmp_path: Path) -> None:
    waits = [*done(3), call(4, state="started")]
    found = compared(tmp_path, {0: waits, 1: waits}, {"0": [0, 1, 2]})
    assert found.absent == (2,)
    assert found.disagreements[0].ranks == (2,)
    assert found.disagreements[0].sentence.startswith("there is no record of rank 2, and ranks 0, 1 wait in all_reduce")


@pytest.mark.parametrize(
    ("usual", "odd", "words"),
    [
        ({}, {"operation": "broadcast"}, "rank 1 called broadcast at train.py:88 as call 4 of the default group"),
        ({}, {"sizes": [[4, 3]]}, "rank 1 called all_reduce of [4, 3]"),
        ({}, {"dtype": "BFloat16"}, "rank 1 called all_reduce of BFloat16"),
    ],
    ids=["operation", "size", "dtype"],
)
def test_a_call_that_differs_is_named(usual: dict[str, Any], odd: dict[str, Any], words: str, tmp_path: Path) -> None:
    common, other = [*done(3), call(4, state="started", **usual)], [*done(3), call(4, state="started", **odd)]
    (one,) = compared(tmp_path, {0: common, 1: other, 2: common}).disagreements
    assert (one.kind, one.seq, one.ranks) == ("differs", 4, (1,))
    assert one.sentence.startswith(words)
    assert "where ranks 0, 2 called all_reduce" in one.sentence


def test_a_rank_that_left_a_call_out_is_traced_to_where_it_did(tmp_path: Path) -> None:
    """All calls are alike, so they pair up; the lines say that the rank is one ahead since call 5."""
    lines = [88, 90] * 5
    others = [call(at + 1, line=line) for at, line in enumerate(lines[:-1])] + [call(10, line=90, state="started")]
    ahead = [call(at + 1, line=line) for at, line in enumerate(lines[:4] + lines[5:])]
    (one,) = compared(tmp_path, {0: others, 1: ahead, 2: others}).disagreements
    assert (one.kind, one.seq, one.ranks) == ("missing", 10, (1,))
    assert one.sentence.endswith(
        "from call 5 on it is at another line (train.py:90, the others at train.py:88): it left one out there"
    )


def test_what_hangs_first_comes_before_what_waits_for_it(tmp_path: Path) -> None:
    tensor, whole = ("1", "default_pg"), ("0", "default_pg")
    rank_2 = [call(1, group=whole), call(1, group=tensor, state="started", record=2, line=40)]
    rank_3 = [call(1, group=whole)]
    others = [call(1, group=whole), call(2, group=whole, state="started")]
    found = compared(tmp_path, {0: others, 1: others, 2: rank_2, 3: rank_3}, {"0": [0, 1, 2, 3], "1": [2, 3]})
    first, then = found.disagreements
    assert (first.ranks, first.waiting, first.line) == ((3,), (2,), "train.py:40")
    assert (then.ranks, then.waiting) == ((2, 3), (0, 1))


def test_all_called_it_and_one_device_has_not_begun(tmp_path: Path) -> None:
    begun, idle = [*done(3), call(4, state="started")], [*done(3), call(4, state="scheduled")]
    (one,) = compared(tmp_path, {0: begun, 1: idle}).disagreements
    assert (one.kind, one.ranks) == ("unfinished", (1,))
    assert "the device of rank 1 has not begun it" in one.sentence
    for file in tmp_path.iterdir():
        file.unlink()
    (one,) = compared(tmp_path, {0: begun, 1: begun}).disagreements
    assert (one.kind, one.ranks, one.waiting) == ("unfinished", (), (0, 1))
    assert "look at the network or a device" in one.sentence


def test_a_send_without_its_receive(tmp_path: Path) -> None:
    def sends(rank: int, *, count: int) -> list[Entry]:
        return [call(at, f"send {rank}->{rank + 1}", p2p=True, record=at) for at in range(1, count + 1)]

    def receives(rank: int, *, count: int) -> list[Entry]:
        return [call(at, f"recv {rank}<-{rank - 1}", p2p=True, record=at) for at in range(1, count + 1)]

    waits = [*sends(0, count=2), call(3, "send 0->1", p2p=True, state="started", line=31)]
    (one,) = compared(
        tmp_path, {0: waits, 1: [*receives(1, count=2), *sends(1, count=2)], 2: receives(2, count=2)}
    ).disagreements
    assert (one.kind, one.ranks, one.waiting, one.line) == ("unmatched", (1,), (0,), "train.py:31")
    assert one.sentence == "rank 1 did not receive from rank 0: rank 0 waits in send to rank 1 at train.py:31"


@pytest.mark.parametrize("operation", ["all_to_all", "gather", "scatter", "all_gather"])
def test_sizes_that_may_differ_do(operation: str, tmp_path: Path) -> None:
    found = compared(tmp_path, {rank: [call(1, operation, sizes=[[rank + 1, 2]])] for rank in range(3)})
    assert found.agrees


def test_a_buffer_that_has_lost_its_first_calls_differs_in_nothing(tmp_path: Path) -> None:
    assert compared(tmp_path, {0: done(9), 1: done(9)[5:], 2: done(9)[3:]}).agrees


def ask(*paths: Path | str, options: tuple[str, ...] = ()) -> Result:
    return CliRunner().invoke(command, [*map(str, paths), *options], standalone_mode=False, catch_exceptions=True)


def test_the_command_says_it_in_words_and_as_a_document(tmp_path: Path) -> None:
    dump(tmp_path, {0: [*done(2), call(3, state="started")], 1: done(2)})
    said = ask(tmp_path)
    assert said.return_value == 1
    assert said.output.splitlines()[0] == "2 ranks, 1 group, 5 calls"
    assert said.output.splitlines()[1].startswith("rank 1 did not call all_reduce, call 3 of the default group")
    document = json.loads(ask(tmp_path, options=("--json",)).output)
    assert document["schema"] == "steadytrain.collectives/1"
    assert document["disagreements"][0]["ranks"] == [1]
    for file in tmp_path.iterdir():
        file.unlink()
    dump(tmp_path, {0: done(2), 1: done(2)})
    said = ask(tmp_path)
    assert said.return_value == 0
    assert "the ranks agree" in said.output


class Owned:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, ("touch owned",)


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("rank_0", b"", "empty"),
        ("rank_0", b"\x80\x04nothing", "not readable"),
        ("rank_0", bytes(range(128, 192)), "not readable"),
        ("rank_0", b"{'entries'", "not readable"),
        ("rank_0", pickle.dumps(Owned()), "refused: it would build or run posix.system"),
        ("rank_0", pickle.dumps([1, 2]), "not a record of collectives: a list"),
        ("rank_0", b'{"entries": 3}', "it has no list of entries"),
        ("rank_0", b'{"entries": [{"profiling_name": "nccl:all_reduce"}]}', "not a record of collectives (KeyError"),
        ("rank_0", b"\x80\x04r\xff\xff\xff\x7f.", "not readable"),  # a memo entry far away: memory in the C version
        ("trace", b'{"entries": []}', "of which rank?"),
    ],
    ids=[
        "empty",
        "cut off",
        "other bytes",
        "python",
        "runs code",
        "list",
        "no list",
        "no fields",
        "far memo",
        "no rank",
    ],
)
def test_what_is_no_record_is_refused_in_a_line(
    name: str, data: bytes, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_bytes(data)
    with pytest.raises(UsageError) as refused:
        read_record(tmp_path / name)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "owned").exists()


def test_what_is_missing_or_twice_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        read_records([tmp_path / "gone"])
    with pytest.raises(UsageError, match="TORCH_FR_DUMP_TEMP_FILE"):
        read_records([tmp_path])
    dump(tmp_path, {0: done(2)})
    (tmp_path / "again").mkdir()
    dump(tmp_path / "again", {0: done(2)})
    with pytest.raises(UsageError, match="rank 0 again"):
        read_records([tmp_path, tmp_path / "again"])


def test_a_run_keeps_the_newest_calls(tmp_path: Path) -> None:
    write_record(tmp_path, 3, trace(done(ENTRIES_KEPT + 40), {"0": [0, 3]}))
    record = read_record(tmp_path / "collectives.json")
    assert record.rank == 3
    assert next(one.seq for one in record.groups["0"].calls) == 41
    assert record.evicted


REAL = """
import sys, threading, time
import torch
import torch.distributed as dist
import torch._C._distributed_c10d as c10d
dist.init_process_group("gloo")
rank = dist.get_rank()
value = torch.ones(4)
def leave():
    time.sleep(3.0)
    open(f"{sys.argv[1]}/rank_{rank}", "wb").write(c10d._dump_fr_trace(True, True, False))
    time.sleep(3.0)
    import os; os._exit(0)
threading.Thread(target=leave, daemon=True).start()
for step in range(3):
    dist.all_reduce(value)
if rank != 1:
    dist.broadcast(value, 0)
time.sleep(30.0)
"""


@pytest.mark.slow
@pytest.mark.long
def test_the_records_of_real_processes(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if not hasattr(torch._C._distributed_c10d, "_dump_fr_trace"):
        pytest.skip("this torch records no gloo collectives")
    (tmp_path / "job.py").write_text(REAL)
    (tmp_path / "records").mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    line = [sys.executable, str(tmp_path / "job.py"), str(tmp_path / "records")]
    shared = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "3"}
    shared |= {"TORCH_FR_BUFFER_SIZE": "100", "OMP_NUM_THREADS": "1"}
    jobs = [subprocess.Popen(line, env={**shared, "RANK": str(rank)}) for rank in range(3)]
    for job in jobs:
        job.wait(60)  # one may end before the others, whose call then fails
    (one,) = compare_records(read_records([tmp_path / "records"])).disagreements
    assert (one.kind, one.operation, one.seq, one.ranks) == ("missing", "broadcast", 4, (1,))
    assert 0 in one.waiting  # rank 2 may have its value already
    assert one.line == "job.py:18"
