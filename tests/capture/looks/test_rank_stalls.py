"""Steps of several ranks that do not go on: where each rank is, and which the others wait for."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

import builders
from rank_folders import FINISHED, SIGNALLED, run_of
from scripts import Started, recorded, watched, write
from steadytrain.capture.looks import rank_stalls
from steadytrain.capture.looks.rank_stalls import RankStalls, where
from steadytrain.cli import runs, show
from steadytrain.report.build import from_run
from steadytrain.storage.run_folder import open_run
from steadytrain.storage.run_summaries import keep_summary, summary_of
from steadytrain.storage.stalls import STALLS, Stall, read_stall, stall_sentences, waited_for_first, write_stall

SCRIPT = """
import time
import torch
import torch.distributed as dist
from steadytrain.capture.looks import rank_stalls
from torch.nn.parallel import DistributedDataParallel

rank_stalls.STALLED_S_MIN, rank_stalls.STALLED_TIMES, rank_stalls.CHECK_S = 2.0, 1.0, 0.25
torch.set_num_threads(1)
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(1, 7):
    inputs = torch.randn(16, 8)
    if step == 5 and dist.get_rank() == 1:
        time.sleep(9.0)  # the disk hangs
    optimizer.zero_grad()
    model(inputs).pow(2).mean().backward()
    optimizer.step()
dist.destroy_process_group()
"""


def stall(rank: int, *, step: int = 4, line: str = "train.py:9", inside: str = "backward") -> Stall:
    return Stall(rank, step, 61.2, line, "loss.backward()", inside, ("train.py:9 main",))


def test_the_rank_that_the_others_wait_for_comes_first() -> None:
    others = [stall(0), stall(2)]
    assert waited_for_first([*others, stall(1, step=3)])[0].rank == 1
    assert waited_for_first([*others, stall(1, line="train.py:5", inside="sleep")])[0].rank == 1
    assert waited_for_first([stall(0), stall(1, line="train.py:5", inside="")])[0].rank == 1  # two ranks: who waits?


def test_it_is_kept_beside_the_records_of_the_rank(tmp_path: Path) -> None:
    assert read_stall(tmp_path) is None
    assert stall_sentences([tmp_path]) == []
    write_stall(tmp_path, stall(1))
    assert read_stall(tmp_path) == stall(1)
    assert stall_sentences([tmp_path]) == [
        "No step was made for a long time: rank 1, 61 s after its step 4: train.py:9, inside backward: loss.backward()."
    ]
    (tmp_path / "stalled.json").write_text('{"rank": "x"}')
    assert read_stall(tmp_path) is None


def test_the_line_is_the_innermost_of_the_script() -> None:
    line, code, inside, stack = where(sys._getframe())
    assert line.startswith("test_rank_stalls.py:")
    assert "where(sys._getframe())" in code
    assert inside == ""
    assert stack[-1].endswith("test_the_line_is_the_innermost_of_the_script")
    assert where(None) == ("an unknown line", "", "", ())


class Recorded:
    """What a stall that is over leaves with the recorder, and its note."""

    def __init__(self) -> None:
        self.facts: dict[str, Any] = {}
        self.notes: list[str] = []
        self.recorder = self
        self.set_fact = self.facts.__setitem__
        self.note = self.notes.append


def test_a_stall_stays_on_record_when_the_steps_go_on(tmp_path: Path) -> None:
    run = Recorded()
    watched_steps = RankStalls(run)  # type: ignore[arg-type]
    for after in (13, 20):
        watched_steps._last = (after, time.monotonic() - 85.0)
        watched_steps._reported = after
        watched_steps._waited_for = stall(2, step=after, line="misc.py:27", inside="")
        watched_steps.step_ended(SimpleNamespace(step=after + 1), None)  # type: ignore[arg-type]
    assert [(one["rank"], one["step"], one["line"]) for one in run.facts[STALLS]] == [
        (2, 13, "misc.py:27"),
        (2, 20, "misc.py:27"),
    ]
    assert run.notes[0] == (
        "step 14 was made after 85 s without a step: the training goes on; rank 2 was at misc.py:27"
    )
    facts = {**builders.FACTS, "ended": "finished", "notes": [], STALLS: run.facts[STALLS]}
    path = builders.quiet_run(tmp_path / "run", facts=facts)
    assert from_run(open_run(path)).verdict.startswith(
        "No symptom was seen, but no step was made for 85 s after step 13, where rank 2 was at misc.py:27 "
        "(1 more stall): 2 detectors looked"
    )
    folder = ["--runs-dir", str(tmp_path)]
    assert "a stall" in CliRunner().invoke(runs.command, folder).output
    document = json.loads(CliRunner().invoke(show.command, ["run", "--json", *folder]).output)
    assert document["stalls"] == run.facts[STALLS]
    keep_summary(path)
    assert summary_of(path).ending.stalled


def test_a_rank_that_has_ended_comes_first_where_the_others_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = run_of(tmp_path / "r", (SIGNALLED, 55), (FINISHED, 55))
    monkeypatch.setattr(rank_stalls, "OTHERS_S_MAX", 0.0)
    monkeypatch.setattr(rank_stalls.ranks, "world_size", lambda: 2)
    run: Any = Recorded()
    run.settings, run.tell = SimpleNamespace(run_dir=folder), run.notes.append
    watched_steps = RankStalls(run)
    watched_steps._closing.set()
    watched_steps._report(folder, 55, 70.0)
    first = run.notes[0].splitlines()[1]
    assert first == "  rank 1 has ended after its step 55 (finished)"


@pytest.mark.slow
@pytest.mark.long
def test_the_first_rank_reports_where_all_are(tmp_path: Path) -> None:
    write(tmp_path, SCRIPT)
    launcher = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2")
    ended = Started([*launcher, *watched("script.py")[1:]], tmp_path).end()
    assert ended.status == 0, ended.err
    assert ended.told.count("warning: no step for ") == 1
    first, second = (line for line in ended.told.splitlines() if "after its step 4" in line)
    assert (
        "rank 1 did not call all_reduce, call 10 of the default group, which rank 0 waits in at script.py:"
        in ended.told
    )
    assert first.lstrip().startswith("rank 1")
    assert "time.sleep(9.0)" in first
    assert second.lstrip().startswith("rank 0")
    assert "note: step 5 was made after" in ended.told
    run = recorded(tmp_path)
    (kept,) = run.facts[STALLS]
    assert (kept["rank"], kept["step"], kept["inside"]) == (1, 4, "")
    assert "where rank 1 was at script.py:" in from_run(run).verdict
