"""Steps of several ranks that do not go on: where each rank is, and which the others wait for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from scripts import Started, watched, write
from steadytrain.capture.looks.rank_stalls import where
from steadytrain.storage.stalls import Stall, read_stall, stall_sentences, waited_for_first, write_stall

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
