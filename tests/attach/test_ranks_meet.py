"""Ranks that no launcher gave a common run folder: the script makes the process group itself, as under ``srun``."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import Ended, Started, command, write_script
from steadytrain.storage.run_folder import open_run

GROUP = """
import os, sys, time
import torch
import torch.distributed as dist

rank = int(os.environ["OWN_RANK"])
store = "file://" + os.path.join(os.getcwd(), "store")
dist.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
torch.manual_seed(rank)
"""

TOGETHER = (
    GROUP
    + """
from torch.nn.parallel import DistributedDataParallel
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(12):
    inputs = torch.randn(8, 4)
    if step == 9 and rank == 1 and os.environ.get("BAD"):
        inputs[3, 2] = float("nan")
    loss = torch.nn.functional.mse_loss(model(inputs), inputs.sum(dim=1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
"""
)

ONLY_THE_SECOND_TRAINS = (
    GROUP
    + """
if rank == 1:
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(5):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
dist.barrier()
dist.destroy_process_group()
"""
)


OF_TWO_NODES = """
import os
import torch
import torch.distributed as dist
import torch.multiprocessing

def train(index, rank):
    store = "file://" + os.path.join(os.getcwd(), "store")
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(8):
        inputs = torch.randn(8, 4)
        loss = torch.nn.functional.mse_loss(model(inputs), inputs.sum(dim=1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()

if __name__ == "__main__":
    torch.multiprocessing.spawn(train, args=(int(os.environ["OWN_RANK"]),))
"""


def run_both(folder: Path, script: str, *options: str, **environment: str) -> list[Ended]:
    name = write_script(folder, script).name
    own = [{**environment, "OWN_RANK": str(rank)} for rank in (0, 1)]
    started = [Started(command("run", "--runs-dir", "runs", *options, name), folder, environment=one) for one in own]
    return [one.end() for one in started]


def test_they_record_in_the_first_ones_folder(tmp_path: Path) -> None:
    first, second = run_both(tmp_path, TOGETHER)
    assert first.status == second.status == 0, first.err + second.err
    (folder,) = (tmp_path / "runs").iterdir()
    run = open_run(folder)
    assert run.description["rank"] == 0
    assert [open_run(rank).description["name"] for rank in run.ranks] == [folder.name]
    assert "belongs to the run of rank 0" in second.err
    assert "12 steps seen" in first.err
    assert "steps seen" not in second.err


def test_all_stop_and_the_first_reports(tmp_path: Path) -> None:
    first, second = run_both(tmp_path, TOGETHER, BAD="1")
    assert first.status == second.status == 70
    (folder,) = (tmp_path / "runs").iterdir()
    assert len(open_run(folder).incidents) == 1
    assert "on rank 1" in first.err + second.err
    assert "is gone" not in first.err + second.err


def test_the_first_tells_what_another_one_showed(tmp_path: Path) -> None:
    apart = TOGETHER.replace("DistributedDataParallel(torch.nn.Linear(4, 1))", "torch.nn.Linear(4, 1)")
    first, second = run_both(tmp_path, apart, "--policy", "observe", BAD="1")
    assert first.status == second.status == 0, first.err + second.err
    assert "rank 1: symptoms: " in first.err
    assert "nonfinite-loss (critical)" in first.err
    assert "steps seen" not in second.err


@pytest.mark.long
def test_a_rank_alone_tells_what_it_shows_although_it_is_not_the_first(tmp_path: Path) -> None:
    name = write_script(tmp_path, ONLY_THE_SECOND_TRAINS.replace("range(5)", "range(9)")).name
    ranks = [{"OWN_RANK": str(rank), "RANK": str(rank), "WORLD_SIZE": "2"} for rank in (0, 1)]
    started = [Started(command("run", "--runs-dir", "runs", name), tmp_path, environment=one) for one in ranks]
    first, second = (one.end() for one in started)
    assert first.status == second.status == 0, first.err + second.err
    assert "9 steps seen" in second.err


@pytest.mark.long
def test_a_rank_stays_a_run_of_its_own_if_the_first_does_not_train(tmp_path: Path) -> None:
    first, second = run_both(tmp_path, ONLY_THE_SECOND_TRAINS)
    assert first.status == second.status == 0, first.err + second.err
    (folder,) = (path for path in (tmp_path / "runs").iterdir() if (path / "run.json").exists())
    assert open_run(folder).description["rank"] == 1
    assert "5 steps seen" in second.err
    assert second.err.rstrip().endswith(folder.name)


@pytest.mark.long
def test_children_of_another_node_join_the_run_of_the_first(tmp_path: Path) -> None:
    first, second = run_both(tmp_path, OF_TWO_NODES, "--require-training")
    assert first.status == second.status == 0, first.err + second.err
    (folder,) = (tmp_path / "runs").iterdir()
    assert [path.name for path in open_run(folder).ranks] == ["0001"]
    assert "no PyTorch training was seen" not in second.err
    assert "in the run of rank 0 of their group" in second.err
