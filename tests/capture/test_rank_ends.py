"""Two ranks of torchrun of which one ends before the other: what the run and its folder say."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from scripts import Started, recorded, watched, write
from steadytrain.report.build import from_run
from steadytrain.storage.rank_endings import first_end_of

SCRIPT = """
import os, sys
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
seen = torch.Generator().manual_seed(rank)
for step in range(1, 21 - 5 * (sys.argv[1] == "fewer" and rank)):
    inputs = torch.randn(16, 8, generator=seen)
    loss = torch.nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    optimizer.zero_grad()
    if sys.argv[1] == "killed" and rank and step == 13:
        os.kill(os.getpid(), 9)
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
"""
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2")


@pytest.mark.slow
@pytest.mark.long
def test_a_rank_with_fewer_batches(tmp_path: Path) -> None:
    write(tmp_path, SCRIPT)
    ended = Started([*TORCHRUN, *watched("script.py", "fewer")[1:]], tmp_path).end()
    assert ended.status
    said = "rank 1 ended after its 15 steps while others went on to step 16: an uneven number of batches"
    assert f"critical: {said}" in ended.told
    run = recorded(tmp_path)
    assert [one.name for one in run.symptoms if one.severity == "critical"] == ["uneven-ranks"]
    assert from_run(run).verdict == f"critical: uneven-ranks at step 15: {said}"


@pytest.mark.slow
@pytest.mark.long
def test_a_rank_that_is_killed(tmp_path: Path) -> None:
    write(tmp_path, SCRIPT)
    ended = Started([*TORCHRUN, *watched("script.py", "killed")[1:]], tmp_path).end()
    assert ended.status
    assert "do not make the same steps" not in ended.told
    run = recorded(tmp_path)
    first = first_end_of(run.path)
    assert first is not None
    assert (first.end.rank, first.end.step, first.kind) == (1, 12, "vanished")
    assert from_run(run).verdict.startswith("Rank 1 ended first, after its 12 steps")
