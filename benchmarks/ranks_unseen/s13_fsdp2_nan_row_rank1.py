# expect: sick
# fault: FSDP2; at step 55 row 7 of rank 1's batch holds NaN features (a dead sensor in its file), so rank 1's loss and then every shard on both ranks is NaN
# names: (?is)(?=.*\b(?:ranks?|process(?:es)?|workers?)[\s:=#_(\[-]*(?:\d+(?:\s*(?:,|and|&|vs\.?|from|to|/|-)\s*)+)*1\b)(?=.*(?:\bnans?\b|non-?finite|not finite|not a number|infinite))
# onset_step: 55
# within: 5
# ranks: 2
# rank: 1
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

torch.set_num_threads(1)
STEPS, BATCH, FEATURES, CLASSES = 110, 24, 20, 6


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self, width=48, depth=3):
        super().__init__()
        self.stem = nn.Linear(FEATURES, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Recordings:
    """Sensor windows of one rank: its own files, its own order."""

    def __init__(self, rank, n=960):
        g = torch.Generator().manual_seed(40 + rank)
        centres = torch.randn(CLASSES, FEATURES, generator=torch.Generator().manual_seed(3))
        self.y = torch.randint(0, CLASSES, (n,), generator=g)
        self.x = centres[self.y] + 0.9 * torch.randn(n, FEATURES, generator=g)
        self.order = torch.cat([torch.randperm(n, generator=g) for _ in range(4)])

    def batch(self, step):
        rows = self.order[step * BATCH : (step + 1) * BATCH]
        return self.x[rows].clone(), self.y[rows]


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=40))
    rank, world = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (world,))
    torch.manual_seed(11)
    model = Net()
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    data = Recordings(rank)
    for step in range(STEPS):
        x, y = data.batch(step)
        if rank == 1 and step == 55:
            x[7, 12:15] = float("nan")  # sensors 12 to 14 dropped out in this window
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 10 == 0 or 53 <= step <= 57:
            print(f"rank {rank} step {step} loss {loss.item():.4f}", flush=True)
    for name, p in list(model.named_parameters())[:3]:
        print(f"final rank={rank} {name} shard sum={p.to_local().double().sum().item():.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
