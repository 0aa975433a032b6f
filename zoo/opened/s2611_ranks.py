# expect: sick
# symptom: load forecaster converges well on two workers; some steps after the job is scaled out to sixteen workers the loss climbs and blows up
# axis: harness
# cause: after the elastic scale-out from 2 to 16 workers the summed gradient is still divided by the world size remembered at launch (2), so gradients are eight times too large and SGD diverges
# says: (world.?size|workers?|ranks?\b|replicas?|scale.?out|elastic|all.?reduce|resize).{0,300}(divid\w*|divisor|denominator|averag\w*|stale|outdated|remember\w*|not updated|never updated|(eight|four|[48]) ?(x|times|-?fold)|summed|instead of (the )?mean|normali[sz]\w*|too large)|(divid\w*|divisor|averag\w*|stale|outdated|normali[sz]\w*|summed).{0,200}(world.?size|workers?|ranks?\b|replicas?)
# onset_step: 201
# fix: divide the reduced gradient by the current number of ranks
# mended: yes
"""Elastic data-parallel training of a power-load forecaster, with the process group simulated in one process."""

import copy
import os

import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(8)

WINDOW, HORIZON = 72, 12
PER_RANK = 10


def load_curves(n_sites=30, hours=1600, seed=4):
    g = np.random.default_rng(seed)
    t = np.arange(hours)
    out = []
    for _ in range(n_sites):
        day = g.uniform(0.6, 1.2) * np.sin(2 * np.pi * (t + g.uniform(0, 24)) / 24)
        half = g.uniform(0.1, 0.5) * np.sin(2 * np.pi * (t + g.uniform(0, 12)) / 12)
        week = g.uniform(0.1, 0.5) * np.sin(2 * np.pi * t / 168)
        ar = np.zeros(hours)
        e = g.normal(0, 0.08, hours)
        for k in range(1, hours):
            ar[k] = 0.9 * ar[k - 1] + e[k]
        out.append(day + half + week + ar)
    return torch.tensor(np.stack(out), dtype=torch.float32)


class CausalBlock(nn.Module):
    def __init__(self, ch, dilation):
        super().__init__()
        self.pad = 2 * dilation
        self.conv = nn.Conv1d(ch, ch, 3, dilation=dilation)
        self.mix = nn.Conv1d(ch, ch, 1)

    def forward(self, x):
        h = nn.functional.pad(x, (self.pad, 0))
        return x + self.mix(torch.tanh(self.conv(h)))


class TCN(nn.Module):
    def __init__(self, ch=16):
        super().__init__()
        self.stem = nn.Conv1d(1, ch, 1)
        self.blocks = nn.Sequential(*[CausalBlock(ch, d) for d in (1, 2, 4, 8, 16)])
        self.head = nn.Linear(ch, HORIZON)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x[:, None]))[..., -1]) + x[:, -1:]


class Rank:
    """One worker: a replica and its own stream of windows."""

    def __init__(self, rank, model, curves):
        self.model = model
        self.curves = curves
        self.gen = torch.Generator().manual_seed(1000 + rank)

    def backward(self):
        site = torch.randint(len(self.curves), (PER_RANK,), generator=self.gen)
        start = torch.randint(1200 - WINDOW - HORIZON, (PER_RANK,), generator=self.gen)
        idx = start[:, None] + torch.arange(WINDOW + HORIZON)
        w = self.curves[site[:, None], idx]
        loss = nn.functional.mse_loss(self.model(w[:, :WINDOW]), w[:, WINDOW:])
        self.model.zero_grad()
        loss.backward()
        return loss.item()


class ElasticTrainer:
    def __init__(self, curves, world_size, lr):
        self.curves = curves
        self.world_size = world_size
        self.master = TCN()
        self.ranks = []
        self.optimizer = torch.optim.SGD(self.master.parameters(), lr=lr, momentum=0.9)
        self.resize(world_size)

    def resize(self, n):
        while len(self.ranks) < n:
            self.ranks.append(Rank(len(self.ranks), copy.deepcopy(self.master), self.curves))
        self.ranks = self.ranks[:n]
        if os.environ.get("MENDED") == "1":
            self.world_size = n
        self.broadcast()

    def broadcast(self):
        flat = nn.utils.parameters_to_vector(self.master.parameters()).detach()
        for r in self.ranks:
            nn.utils.vector_to_parameters(flat.clone(), r.model.parameters())

    def all_reduce(self):
        bucket = None
        for r in self.ranks:
            g = torch.cat([p.grad.reshape(-1) for p in r.model.parameters()])
            bucket = g if bucket is None else bucket + g
        bucket /= self.world_size
        pos = 0
        for p in self.master.parameters():
            p.grad = bucket[pos : pos + p.numel()].view_as(p).clone()
            pos += p.numel()

    def step(self):
        losses = [r.backward() for r in self.ranks]
        self.all_reduce()
        self.optimizer.step()
        self.broadcast()
        return sum(losses) / len(losses)

    @torch.no_grad()
    def validate(self):
        starts = torch.arange(1250, 1600 - WINDOW - HORIZON, 20)
        w = torch.cat([self.curves[:, s : s + WINDOW + HORIZON] for s in starts.tolist()])
        return nn.functional.mse_loss(self.master(w[:, :WINDOW]), w[:, WINDOW:]).item()


if __name__ == "__main__":
    trainer = ElasticTrainer(load_curves(), world_size=2, lr=0.12)
    for it in range(1, 421):
        if it == 201:
            trainer.resize(16)
            print("membership changed: 16 ranks")
        loss = trainer.step()
        if it % 25 == 0:
            print(f"it {it:4d} loss {loss:.4f}")
        if it % 100 == 0:
            print(f"        valid mse {trainer.validate():.4f}")
