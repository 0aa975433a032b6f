# Ranks of numbers in a list, as a curriculum: lists of 4, then 6, then 9 numbers, GRU, Adam. Each change makes the loss jump.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
args = ap.parse_args()
fixed = torch.Generator().manual_seed(331)


def lists(n, length, g=None):
    """Rank of each number in its list, from 0 to 8."""
    x = torch.rand(n, length, generator=g)
    return x.unsqueeze(-1), x.argsort(1).argsort(1)


class Ranker(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(1, 24, batch_first=True, bidirectional=True)
        self.out = nn.Linear(49, 9)

    def forward(self, x):
        return self.out(torch.cat([self.gru(x)[0], x], -1)).transpose(1, 2)


test = lists(800, 9, fixed)
torch.manual_seed(args.seed)
model = Ranker()
opt = torch.optim.Adam(model.parameters(), lr=5e-3)
for step in range(750):
    x, rank = lists(32, 4 if step < 250 else 6 if step < 500 else 9)
    loss = nn.functional.cross_entropy(model(x), rank)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 0:
        print(step, x.shape[1], f"{loss.item():.4f}")
with torch.no_grad():
    print("final:", nn.functional.cross_entropy(model(test[0]), test[1]).item())
