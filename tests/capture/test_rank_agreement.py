"""Ranks of torchrun that differ, in real runs: what is reported, once, and where nothing is."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from scripts import Started, recorded, watched, write
from steadytrain.report.build import from_run
from steadytrain.storage.ranks_of_run import FIRST_BAD_RANK
from steadytrain.storage.run_folder import open_run

SCRIPT = """
import sys
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

fault = sys.argv[1]
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank if fault == "other weights" else 0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
by_hand = fault in ("by hand", "other weights", "not shared", "no longer shared", "averaged weights")
called = model if by_hand else DistributedDataParallel(model)
decay = 0.1 if fault == "other decay" and rank else 0.0
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=decay)
if fault == "other state" and rank:
    moments = [{"step": torch.tensor(5.0), "exp_avg": torch.ones_like(p), "exp_avg_sq": torch.ones_like(p)}
               for p in model.parameters()]
    optimizer.load_state_dict({**optimizer.state_dict(), "state": dict(enumerate(moments))})
seen = torch.Generator().manual_seed(0 if fault == "same data" else rank)
for step in range(1, 97):
    inputs = torch.randn(16, 8, generator=seen)
    loss = torch.nn.functional.mse_loss(called(inputs), inputs.sum(1, keepdim=True))
    if fault == "larger loss" and rank:
        loss = 64 * loss
    if fault == "other rate" and rank and step == 41:
        optimizer.param_groups[0]["lr"] = 0.02
    optimizer.zero_grad()
    loss.backward()
    for parameter in model.parameters() if fault in ("by hand", "other weights", "no longer shared") else ():
        shared = parameter.grad.clone()
        dist.all_reduce(shared)
        if not (fault == "no longer shared" and rank and step > 40):
            parameter.grad = shared / 2
    optimizer.step()
    with torch.no_grad():
        if fault == "flipped bit" and rank and step == 20:
            model[0].weight[2, 3] += 1e-6
        for parameter in model.parameters() if fault == "averaged weights" and step % 10 == 0 else ():
            dist.all_reduce(parameter.data)
            parameter.data /= 2
dist.barrier()
dist.destroy_process_group()
"""

FAULTS = {
    "no longer shared": "critical: the gradients on rank 1 differ from rank 0 since step 41",
    "not shared": "warning: the gradients on rank 1 differ from rank 0 since step 1",
    "other weights": "critical: the weights of rank 1 differed from rank 0 from the start, although",
    "flipped bit": "critical: 0.weight on rank 1 differs from rank 0 at step ",
    "other decay": "critical: rank 1 trains with another weight_decay than rank 0 since step 1",
    "other rate": "rank 1 trains with learning rate 0.02, rank 0 with 0.01 since step 41",
    "other state": "although gradients are shared; its optimizer state differed before step 1",
    "same data": "warning: all ranks train on the same batches",
    "larger loss": "warning: the loss of rank 1 is about ",
}
HEALTHY = ("wrapped", "by hand", "averaged weights")
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2")


def trained(folder: Path, fault: str) -> Started:
    write(folder, SCRIPT)
    ended = Started([*TORCHRUN, *watched("script.py", fault)[1:]], folder).end()
    assert ended.status == 0, ended.err
    assert ended.told.count("steps seen") == 1  # the first rank reports for all
    return ended


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS)
def test_a_rank_that_differs_is_named(fault: str, tmp_path: Path) -> None:
    ended = trained(tmp_path, fault)
    assert FAULTS[fault] in ended.told
    run = recorded(tmp_path)
    assert len([one for one in run.symptoms if one.severity != "note"]) == 1
    assert not [one for rank in run.ranks for one in open_run(rank).symptoms if one.severity != "note"]


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("how", HEALTHY)
def test_ranks_that_agree(how: str, tmp_path: Path) -> None:
    ended = trained(tmp_path, how)
    assert not ended.warnings
    assert "; no symptom" in ended.told
    assert not [one for one in recorded(tmp_path).symptoms if one.severity != "note"]


ROOT_OF_ZERO = """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
called = DistributedDataParallel(model)
optimizer = torch.optim.SGD(called.parameters(), lr=0.01)
seen = torch.Generator().manual_seed(rank)
for step in range(1, 9):
    inputs = torch.randn(16, 8, generator=seen)
    targets = inputs.sum(1, keepdim=True)
    if rank and step == 5:
        targets[3] = model(inputs)[3].detach()
    loss = (called(inputs) - targets).pow(2).sum(1).sqrt().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
"""


@pytest.mark.long
@pytest.mark.slow
def test_a_gradient_that_all_ranks_have_is_traced_on_the_rank_where_it_began(tmp_path: Path) -> None:
    # The loss is finite everywhere, and the reduced gradient is NaN on both ranks.
    write(tmp_path, ROOT_OF_ZERO)
    ended = Started([*TORCHRUN, *watched("script.py")[1:]], tmp_path).end()
    assert ended.told.count("STOPPED before the update of step 5") == 1
    assert "on rank 1.\n  first bad operation  aten.div.Tensor made inf in backward" in ended.told
    run = recorded(tmp_path)
    assert run.facts[FIRST_BAD_RANK] == 1
    first = from_run(run).incidents[0]
    assert "aten.div.Tensor" in str(first)


@pytest.mark.long
@pytest.mark.slow
def test_two_nodes_without_a_shared_folder_say_so_on_both(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    nodes = []
    for node in ("0", "1"):
        folder = tmp_path / node
        folder.mkdir()
        write(folder, SCRIPT)
        there = ("--nnodes", "2", "--node-rank", node, "--master-addr", "127.0.0.1", "--master-port", port)
        launcher = [sys.executable, "-m", "torch.distributed.run", *there, "--nproc-per-node", "1"]
        nodes.append(Started([*launcher, *watched("script.py", "wrapped")[1:]], folder))
    first, second = (node.end() for node in nodes)
    assert (first.status, second.status) == (0, 0)
    assert first.told.count("rank 0 cannot see the folder of rank 1, so the ranks are not compared") == 1
    assert second.told.count("this is a part of the run, rank 1 of 2: rank 0 does not record here") == 1
