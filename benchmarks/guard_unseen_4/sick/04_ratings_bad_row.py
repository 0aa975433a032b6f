# Ratings of films: embeddings of people and films with a small tower, SGD with momentum, many passes over one table. One row of the table
# has a time stamp where the stars belong; it comes back once in each pass.
import argparse

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--twin", action="store_true")
args = parser.parse_args()

PEOPLE, FILMS, D = 300, 200, 8
gen = torch.Generator().manual_seed(19)
u, f = torch.randn(PEOPLE, 4, generator=gen), torch.randn(FILMS, 4, generator=gen)


def table(n):
    i = torch.randint(0, PEOPLE, (n,), generator=gen)
    j = torch.randint(0, FILMS, (n,), generator=gen)
    stars = 3 + 0.6 * (u[i] * f[j]).sum(1) + 0.3 * torch.randn(n, generator=gen)
    return i, j, stars.clamp(0.5, 5.5)


who, film, stars = table(19200)
test = table(6000)
if not args.twin:
    stars[7777] = 1112486.0


class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        self.p, self.f = nn.Embedding(PEOPLE, D), nn.Embedding(FILMS, D)
        nn.init.normal_(self.p.weight, std=0.3)
        nn.init.normal_(self.f.weight, std=0.3)
        self.net = nn.Sequential(nn.Linear(2 * D, 128), nn.Tanh(), nn.Linear(128, 64), nn.Tanh(), nn.Linear(64, 1))

    def forward(self, i, j):
        a, b = self.p(i), self.f(j)
        return (a * b).sum(1) + self.net(torch.cat([a, b], 1)).squeeze(1) + 3


torch.manual_seed(args.seed)
tower = Tower()
sgd = torch.optim.SGD(
    [
        {"params": [*tower.p.parameters(), *tower.f.parameters()], "lr": 1.5},
        {"params": tower.net.parameters(), "lr": 0.02},
    ],
    momentum=0.9,
)
loader = DataLoader(TensorDataset(who, film, stars), batch_size=256, shuffle=True)
mse = nn.MSELoss()
for epoch in range(10):
    total = 0.0
    for i, j, s in loader:
        loss = mse(tower(i, j), s)
        sgd.zero_grad()
        loss.backward()
        sgd.step()
        total += loss.item()
    print("epoch", epoch, total / len(loader))

with torch.no_grad():
    print("final:", mse(tower(test[0], test[1]), test[2]).item())
