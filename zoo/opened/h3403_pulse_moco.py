# expect: healthy
# symptom: the contrastive loss stays high (far from 0), and half of the parameters get no gradient (frozen twin)
# axis: none
"""Contrastive pre-training on pulse traces with a slow key encoder; the other keys of the batch are the negatives."""

import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(13)

KINDS, LENGTH = 40, 64


def traces(n, seed):
    g = torch.Generator().manual_seed(seed)
    shapes = torch.Generator().manual_seed(500)
    freq = 2 + 9 * torch.rand(KINDS, 2, generator=shapes)
    y = torch.randint(0, KINDS, (n,), generator=g)
    t = torch.linspace(0, 1, LENGTH)
    phase = 6.28 * torch.rand(n, 2, 1, generator=g)
    wave = torch.sin(6.28 * freq[y][:, :, None] * t + phase).sum(1)
    return wave + 0.4 * torch.randn(n, LENGTH, generator=g), y


def view(x):
    """Random roll, gain, noise and one blanked stretch."""
    n = len(x)
    shift = torch.randint(0, 12, (n, 1))
    x = x.gather(1, (torch.arange(LENGTH)[None] + shift) % LENGTH)
    x = x * (0.7 + 0.6 * torch.rand(n, 1)) + 0.2 * torch.randn_like(x)
    start = torch.randint(0, LENGTH - 8, (n, 1))
    pos = torch.arange(LENGTH)[None]
    return x.masked_fill((pos >= start) & (pos < start + 8), 0.0)


class Encoder(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(1, 32, 9, stride=2, padding=4),
            nn.GroupNorm(4, 32),
            nn.ReLU(),
            nn.Conv1d(32, 64, 7, stride=2, padding=3),
            nn.GroupNorm(4, 64),
            nn.ReLU(),
            nn.AdaptiveAvgPool1d(1),
            nn.Flatten(),
        )
        self.proj = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, dim))

    def forward(self, x):
        return F.normalize(self.proj(self.body(x.unsqueeze(1))), dim=1)


@torch.no_grad()
def neighbour_accuracy(encoder, x, y, k=5):
    z = F.normalize(encoder.body(x.unsqueeze(1)), dim=1)
    sim = z @ z.T
    sim.fill_diagonal_(-1)
    votes = F.one_hot(y[sim.topk(k).indices], KINDS).sum(1)
    return (votes.argmax(1) == y).float().mean().item()


def main(steps=400, batch=128, tau=0.2, keep=0.9):
    x, _ = traces(4000, seed=1)
    xv, yv = traces(800, seed=2)
    query = Encoder()
    key = copy.deepcopy(query).requires_grad_(False)
    opt = torch.optim.AdamW(query.parameters(), lr=2e-3, weight_decay=1e-4)
    sched = torch.optim.lr_scheduler.LambdaLR(
        opt, lambda s: min(1.0, (s + 1) / 40) * 0.5 * (1 + math.cos(math.pi * s / steps))
    )
    print(f"neighbour accuracy at start {neighbour_accuracy(query, xv, yv):.3f}")
    for step in range(steps):
        clip = x[torch.randint(0, len(x), (batch,))]
        q = query(view(clip))
        with torch.no_grad():
            for pk, pq in zip(key.parameters(), query.parameters()):
                pk.lerp_(pq, 1 - keep)
            k = key(view(clip))
        loss = F.cross_entropy(q @ k.T / tau, torch.arange(batch))
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step % 25 == 0:
            print(f"step {step:4d} loss {loss.item():.4f}")
        if step % 100 == 99:
            print(f"step {step:4d} neighbour accuracy {neighbour_accuracy(query, xv, yv):.3f}")


if __name__ == "__main__":
    main()
