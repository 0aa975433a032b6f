# Advertising: the time spent on a page from two categories and four numbers, with embeddings and a small network. Adagrad.
import argparse

import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--twin", action="store_true")
args = parser.parse_args()
torch.set_num_threads(1)

SITES, GOODS, BATCH, STEPS = 60, 40, 256, 1500
world = torch.Generator().manual_seed(63)
site_effect = torch.randn(SITES, 3, generator=world)
good_effect = torch.randn(GOODS, 3, generator=world)
slope = torch.randn(4, generator=world)


def visits(count, generator):
    site = torch.randint(SITES, (count,), generator=generator)
    good = torch.randint(GOODS, (count,), generator=generator)
    numbers = torch.randn(count, 4, generator=generator)
    fit = (site_effect[site] * good_effect[good]).sum(1) + torch.tanh(numbers @ slope)
    return site, good, numbers, fit + 0.5 * torch.randn(count, generator=generator)


class Net(nn.Module):
    def __init__(self, rank=12, width=96):
        super().__init__()
        self.site = nn.Embedding(SITES, rank)
        self.good = nn.Embedding(GOODS, rank)
        self.mlp = nn.Sequential(
            nn.Linear(3 * rank + 4, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1)
        )

    def forward(self, site, good, numbers):
        s, g = self.site(site), self.good(good)
        return self.mlp(torch.cat((s, g, s * g, numbers), 1))[:, 0]


def run():
    held_out = visits(4000, world)
    torch.manual_seed(args.seed)
    stream = torch.Generator().manual_seed(300 + args.seed)
    net = Net()
    optimizer = torch.optim.Adagrad(net.parameters(), lr=0.05)
    running = None
    for step in range(STEPS):
        site, good, numbers, target = visits(BATCH, stream)
        if not args.twin and step in (80, 81):
            numbers[:120] = numbers[:120] * 2000
        loss = (net(site, good, numbers) - target).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        running = loss.item() if running is None else 0.95 * running + 0.05 * loss.item()
        if step % 100 == 0:
            print("step", step, "loss", round(loss.item(), 4), "smoothed", round(running, 4))
    with torch.no_grad():
        print("final:", (net(*held_out[:3]) - held_out[3]).square().mean().item())


run()
