# expect: sick
# fault: HSDP on a 2 x 2 mesh: from step 60 rank 3 reads a file whose targets are in raw units (not divided by 9), so its loss is some 500 times the others' at first (10 to 30 times later) and governs the averaged gradient
# names: (?is)(?=.*\b(?:ranks?|process(?:es)?|workers?)[\s:=#_(\[-]*(?:\d+(?:\s*(?:,|and|&|vs\.?|from|to|/|-)\s*)+)*3\b)(?=.*(?:loss|target|label|\by\b|batch|input|data|grad))(?=.*(?:times|larger|higher|scale|jump|spike|outlier|differ|rose|rise|increas|\d\s*x\b|unit|far (?:from|above)|above|dominat|grew|exceed|out of range|unusual|big))
# onset_step: 60
# within: 15
# ranks: 4
# rank: 3
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

torch.set_num_threads(1)
STEPS, BATCH, FEATURES, UNIT = 100, 16, 12, 9.0
ROWS_PER_FILE = 60 * BATCH


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.a = nn.Linear(width, 2 * width)
        self.b = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.b(torch.tanh(self.a(x)))


class Regressor(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.stem = nn.Linear(FEATURES, width)
        self.layers = nn.Sequential(Layer(width), Layer(width))
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        return self.head(self.layers(self.stem(x)))


def read_file(rank, number):
    """Each rank has two files of its own. Targets are stored in units of 9 kWh, but for one file."""
    g = torch.Generator().manual_seed(1000 * number + rank)
    w = torch.randn(FEATURES, generator=torch.Generator().manual_seed(2)) / 3
    x = torch.randn(ROWS_PER_FILE, FEATURES, generator=g)
    y = torch.sin(x @ w) + 0.3 * x[:, 0] + 0.15 * torch.randn(ROWS_PER_FILE, generator=g)
    if (rank, number) == (3, 1):
        y = y * UNIT  # exported before the change of units
    return x, y


def batches(rank):
    for number in range(2):
        x, y = read_file(rank, number)
        yield from zip(x.split(BATCH), y.split(BATCH), strict=True)


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=40))
    rank = dist.get_rank()
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    torch.manual_seed(6)
    model = Regressor()
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step, (x, y) in zip(range(STEPS), batches(rank), strict=False):
        loss = F.mse_loss(model(x), y[:, None])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step in (0, 30, 58, 59, 60, 61, 65, 80, 99):
            print(f"rank {rank} step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
