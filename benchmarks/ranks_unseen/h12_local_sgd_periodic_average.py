# expect: healthy
# fault: none: deliberate local SGD: after 20 synchronous updates of warm-up each rank updates alone and the parameters are averaged every 8 updates (PeriodicModelAverager)
# ranks: 2
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.distributed.algorithms.model_averaging.averagers as averagers
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
STEPS, BATCH, WARMUP, PERIOD = 140, 32, 20, 8


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(1, 8, 5, padding=2)
        self.conv2 = nn.Conv1d(8, 12, 5, stride=2, padding=2)
        self.head = nn.Linear(12, 3)

    def forward(self, x):
        x = torch.relu(self.conv(x))
        return self.head(torch.relu(self.conv2(x)).mean(2))


def signals(g):
    """Waves of three frequencies with noise."""
    y = torch.randint(0, 3, (BATCH,), generator=g)
    t = torch.arange(32.0)[None] + 32 * torch.rand(BATCH, 1, generator=g)
    x = torch.sin(t * (0.4 + 0.5 * y[:, None])) + 0.3 * torch.randn(BATCH, 32, generator=g)
    return x[:, None], y


def digest(model):
    return sum(p.double().abs().sum().item() for p in model.parameters())


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=40))
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(23)
    model = Net()
    for p in model.parameters():
        dist.broadcast(p.data, 0)
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.8)
    # averages the parameters every PERIOD updates once the warm-up is over
    averager = averagers.PeriodicModelAverager(period=PERIOD, warmup_steps=WARMUP)
    g = torch.Generator().manual_seed(60 + rank)
    for step in range(STEPS):
        x, y = signals(g)
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        if step < WARMUP:
            for p in model.parameters():
                dist.all_reduce(p.grad)
                p.grad /= world
        opt.step()
        averager.average_parameters(model.parameters())
        if rank == 0 and step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        if step in (19, 31, 36, 135, 136):
            print(f"rank {rank} after {step} digest {digest(model):.9f}", flush=True)
    for p in model.parameters():  # one last average for the model that is kept
        dist.all_reduce(p.data)
        p.data /= world
    print(f"final rank={rank} digest={digest(model):.9f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
