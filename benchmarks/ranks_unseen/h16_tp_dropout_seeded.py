# expect: healthy
# fault: none: tensor parallel; dropout of the replicated residual stream draws from the same seed on every rank, dropout of the sharded hidden units from a generator of its own on each, as it must
# ranks: 2
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

torch.set_num_threads(1)
STEPS, BATCH, SEED = 130, 32, 77


class ShardedDropout(nn.Module):
    """Each rank holds other hidden units, so each draws other masks."""

    def __init__(self, p, seed):
        super().__init__()
        self.p = p
        self.generator = torch.Generator().manual_seed(seed)

    def forward(self, x):
        if not self.training:
            return x
        keep = torch.rand(x.shape, generator=self.generator) >= self.p
        return x * keep / (1 - self.p)


class Block(nn.Module):
    def __init__(self, width, drop, seed):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.fc1 = nn.Linear(width, 4 * width)
        self.inner = ShardedDropout(drop, seed)
        self.fc2 = nn.Linear(4 * width, width)
        self.drop = nn.Dropout(drop)

    def forward(self, x):
        return x + self.drop(self.fc2(self.inner(F.gelu(self.fc1(self.norm(x))))))


class Net(nn.Module):
    def __init__(self, rank, width=32, depth=2):
        super().__init__()
        self.embed = nn.Linear(16, width)
        self.blocks = nn.ModuleList(Block(width, 0.1, 1000 + 10 * i + rank) for i in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 4)

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=40))
    rank, world = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("tp",))
    torch.manual_seed(SEED)
    model = Net(rank)
    for block in model.blocks:
        parallelize_module(block, mesh, {"fc1": ColwiseParallel(), "fc2": RowwiseParallel()})
    torch.manual_seed(SEED + 1)  # the same on every rank: the residual stream is replicated
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3, foreach=False)
    g = torch.Generator().manual_seed(5)
    w = torch.randn(16, 4, generator=g)
    for step in range(STEPS):
        x = torch.randn(BATCH, 16, generator=g)
        y = (torch.tanh(x) @ w).argmax(1)
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0:
            print(f"rank {rank} step {step} loss {loss.item():.4f}", flush=True)
    for name, p in model.named_parameters():
        local = p.to_local() if isinstance(p, DTensor) else p
        kind = "sharded" if isinstance(p, DTensor) and not p.placements[0].is_replicate() else "replicated"
        print(f"final rank={rank} {kind} {name} sum={local.double().sum().item():.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
