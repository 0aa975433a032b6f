"""Models that are split over ranks: what is replicated agrees, what drifts is named, and healthy runs stay quiet."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from scripts import Started, recorded, watched, write
from steadytrain.storage.run_folder import open_run

pytestmark = [pytest.mark.slow, pytest.mark.long]  # each test starts a group of processes

SCRIPT = """
import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

way, fault = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
odd = rank == world - 1


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.drop = nn.LayerNorm(8), nn.Dropout(0.1)
        self.up, self.down, self.head = nn.Linear(8, 16), nn.Linear(16, 8), nn.Linear(8, 1)
        self.register_buffer("scale", torch.ones(8))

    def forward(self, x):
        x = x * self.scale
        return self.head(x + self.drop(self.down(torch.tanh(self.up(self.norm(x))))))


torch.manual_seed(rank if fault == "other weights" else 0)
net = model = Net()
data = rank
if way == "tp":
    mesh = init_device_mesh("cpu", (world,))
    parallelize_module(net, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    data = 0
elif way == "fsdp":
    for part in (net.up, net.down, net):
        fully_shard(part, mesh=init_device_mesh("cpu", (world,)))
elif way == "hsdp":
    fully_shard(net, mesh=init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("replicate", "shard")))
elif way == "tp+fsdp":
    mesh = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("dp", "tp"))
    parallelize_module(net, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    fully_shard(net, mesh=mesh["dp"])
    data = rank // 2
else:
    model = DistributedDataParallel(net)
rate = 0.02 if fault == "other rate" and odd else 0.01
if way == "zero":
    optimizer = ZeroRedundancyOptimizer(net.parameters(), torch.optim.AdamW, lr=rate)
else:
    optimizer = torch.optim.AdamW(net.parameters(), lr=rate)
seen = torch.Generator().manual_seed(data)
torch.manual_seed(rank if fault == "other dropout" else 1 + data)


def local(tensor):
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


for step in range(1, 65):
    inputs = torch.randn(16, 8, generator=seen)
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for name, one in net.named_parameters() if step == 20 and odd else ():
            if name == fault:
                local(one).view(-1)[0] += 1e-6
total = sum(local(one.detach()).double().sum().item() for one in net.parameters())
open(f"rank-{rank}.txt", "w").write(repr(total))
dist.barrier()
dist.destroy_process_group()
"""

FAULTS = {
    (
        "tp",
        "other dropout",
    ): "down.bias, head.weight, head.bias on rank 1 differ from rank 0 at step 2 (last seen equal",
    (
        "tp",
        "other weights",
    ): "the weights of rank 1 (down.bias, head.weight, head.bias) differed from rank 0 from the start",
    ("tp", "down.bias"): "down.bias",
    ("hsdp", "up.weight"): "up.weight on rank 3 differs from rank 1 at step ",
    ("tp+fsdp", "other dropout"): "head.bias on ranks 1 and 3 differ from the other ranks that hold it at step 2",
    ("fsdp", "other rate"): "rank 1 trains with learning rate 0.02, rank 0 with 0.01",
}
HEALTHY = ("tp", "fsdp", "hsdp", "tp+fsdp", "zero", "ddp")
WORLD = {"hsdp": 4, "tp+fsdp": 4}


def launcher(way: str) -> list[str]:
    ranks = str(WORLD.get(way, 2))
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", ranks]


def trained(folder: Path, way: str, fault: str) -> Started:
    write(folder, SCRIPT)
    ended = Started([*launcher(way), *watched("script.py", way, fault)[1:]], folder).end()
    assert ended.status == 0, ended.err
    return ended


@pytest.mark.parametrize(("way", "fault"), FAULTS)
def test_a_replica_that_drifts_is_named(way: str, fault: str, tmp_path: Path) -> None:
    ended = trained(tmp_path, way, fault)
    assert FAULTS[way, fault] in ended.told


@pytest.mark.parametrize("way", HEALTHY)
def test_healthy_ranks_are_quiet_and_compute_the_same(way: str, tmp_path: Path) -> None:
    trained(tmp_path, way, "")
    run = recorded(tmp_path)
    assert not [one for path in (run.path, *run.ranks) for one in open_run(path).symptoms if one.severity != "note"]
    weights = [path.read_text(encoding="utf-8") for path in sorted(tmp_path.glob("rank-*.txt"))]
    subprocess.run([*launcher(way), "script.py", way], cwd=tmp_path, check=True, capture_output=True)
    assert weights == [path.read_text(encoding="utf-8") for path in sorted(tmp_path.glob("rank-*.txt"))]
