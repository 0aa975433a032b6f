# Time spent on a page (log, centred) from hashed categories and a few counters, embeddings under a deep network, Adagrad. The batch of step 25 was
# joined with a log that had its counters not yet put on a log scale. Adagrad never forgets a gradient.
import argparse

import torch
from torch import nn

cli = argparse.ArgumentParser()
cli.add_argument("--seed", type=int, default=0)
cli.add_argument("--twin", action="store_true")
opts = cli.parse_args()

FIELDS, BUCKETS, COUNTERS = 8, 50, 6
world = torch.Generator().manual_seed(41)
taste = torch.randn(FIELDS, BUCKETS, 3, generator=world)
slope = torch.randn(COUNTERS, generator=world) * 0.5


def log_rows(n, gen=None):
    cats = torch.randint(0, BUCKETS, (n, FIELDS), generator=gen)
    counts = torch.randn(n, COUNTERS, generator=gen).mul(1.2).add(1.5)
    v = taste[torch.arange(FIELDS), cats]
    inter = (v.sum(1).pow(2) - v.pow(2).sum(1)).sum(-1) / 12
    score = inter + torch.sin(counts) @ slope
    y = score + 0.3 * torch.randn(n, generator=gen)
    return cats, counts, y


class WideDeep(nn.Module):
    def __init__(self, k=12):
        super().__init__()
        self.emb = nn.Embedding(FIELDS * BUCKETS, k)
        self.bias = nn.Embedding(FIELDS * BUCKETS, 1)
        nn.init.normal_(self.emb.weight, std=0.1)
        nn.init.zeros_(self.bias.weight)
        self.deep = nn.Sequential(nn.Linear(FIELDS * k + COUNTERS, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 1))
        self.register_buffer("shift", torch.arange(FIELDS) * BUCKETS)

    def forward(self, cats, counts):
        e = self.emb(cats + self.shift)
        first = self.bias(cats + self.shift).sum((1, 2))
        return first + self.deep(torch.cat([e.flatten(1), counts], 1)).squeeze(1)


held_out = log_rows(6000, world)
torch.manual_seed(opts.seed)
net = WideDeep()
criterion = nn.MSELoss()
optimizer = torch.optim.Adagrad(net.parameters(), lr=0.05)

for it in range(600):
    cats, counts, y = log_rows(1024)
    if it == 25 and not opts.twin:
        counts = torch.exp(counts * 2.3)
    optimizer.zero_grad()
    loss = criterion(net(cats, counts), y)
    loss.backward()
    optimizer.step()
    if (it + 1) % 100 == 0:
        print(f"{it + 1:4d}  {loss.item():.4f}")

net.eval()
with torch.no_grad():
    print("final:", criterion(net(*held_out[:2]), held_out[2]).item())
