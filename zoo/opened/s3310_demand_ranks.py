# expect: sick
# symptom: loss falls slowly and wanders on a plateau above the noise, validation is poor, no error anywhere
# axis: harness
# cause: replicas start from different random weights, only gradients are averaged; weights are never broadcast
# says: broadcast|(differ|own|same|sync)\w*.{0,60}(weight|init|param|replica)|(replica|rank).{0,60}differ
# onset_step: 0
# fix: load the state of rank 0 into all replicas before the first step
# mended: the script applies that change if the environment has MENDED=1
"""Demand regression with four data-parallel ranks that run in one process."""

import os

import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)
BROADCAST = os.environ.get("MENDED") == "1"

WORLD, STEPS, LOCAL_BATCH, FEATURES = 4, 320, 32, 16


def make_table(n, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, FEATURES, generator=g)
    w = torch.randn(FEATURES, 4, generator=torch.Generator().manual_seed(0)) / FEATURES**0.5
    z = x @ w
    y = torch.sin(2 * z[:, 0]) + z[:, 1] * z[:, 2] + 0.7 * z[:, 3].abs()
    y = y + 0.05 * torch.randn(n, generator=g)
    return x, (y - 0.55) / 1.1


class ResidualBlock(nn.Module):
    def __init__(self, d, p):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.up, self.down = nn.Linear(d, 2 * d), nn.Linear(2 * d, d)
        self.drop = nn.Dropout(p)

    def forward(self, x):
        return x + self.drop(self.down(F.gelu(self.up(self.norm(x)))))


class DemandNet(nn.Module):
    def __init__(self, d=48, depth=2, p=0.02):
        super().__init__()
        self.stem = nn.Linear(FEATURES, d)
        self.blocks = nn.Sequential(*[ResidualBlock(d, p) for _ in range(depth)])
        self.head = nn.Linear(d, 1)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x))).squeeze(-1)


class Rank:
    """What one process would hold: its model, its optimizer, its shard of the rows."""

    def __init__(self, rank, x, y, seed=100):
        torch.manual_seed(seed + rank)
        self.rank = rank
        self.x, self.y = x[rank::WORLD], y[rank::WORLD]
        self.model = DemandNet()
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=2e-3, weight_decay=1e-3)
        self.gen = torch.Generator().manual_seed(seed + rank)
        self.order = []

    def next_batch(self):
        if len(self.order) < LOCAL_BATCH:
            self.order = torch.randperm(len(self.x), generator=self.gen).tolist()
        idx, self.order = self.order[:LOCAL_BATCH], self.order[LOCAL_BATCH:]
        return self.x[idx], self.y[idx]

    def backward(self):
        x, y = self.next_batch()
        loss = F.mse_loss(self.model(x), y)
        self.opt.zero_grad()
        loss.backward()
        return loss.item()


def all_reduce_mean(ranks):
    for params in zip(*[r.model.parameters() for r in ranks]):
        mean = torch.stack([p.grad for p in params]).mean(0)
        for p in params:
            p.grad.copy_(mean)


@torch.no_grad()
def evaluate(model, x, y):
    model.eval()
    mse = F.mse_loss(model(x), y).item()
    model.train()
    return mse, 1 - mse / y.var().item()


def main():
    x, y = make_table(6000, 1)
    xv, yv = make_table(1500, 2)
    ranks = [Rank(r, x, y) for r in range(WORLD)]
    if BROADCAST:
        for r in ranks[1:]:
            r.model.load_state_dict(ranks[0].model.state_dict())
    for step in range(STEPS):
        losses = [r.backward() for r in ranks]
        all_reduce_mean(ranks)
        for r in ranks:
            r.opt.step()
        if step % 20 == 0:
            print(f"step {step:4d} loss {sum(losses) / WORLD:.4f} rank0 {losses[0]:.4f}", flush=True)
    mse, r2 = evaluate(ranks[0].model, xv, yv)
    print(f"final valid mse {mse:.4f} r2 {r2:.4f}")


if __name__ == "__main__":
    main()
