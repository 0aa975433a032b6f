# Orders of customers: factors of customer and article with biases and a small network on top, Adagrad. The amounts are stored in
# thousandths of a unit as 16-bit numbers. One preprocessing worker counts in millionths: its numbers overflow and wrap
# round; its batches come about every twenty-two steps. The right answer is to skip these updates, each time.
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--twin", action="store_true", help="the numbers of the worker do not overflow")
args = parser.parse_args()
torch.set_num_threads(1)

CUSTOMERS, ARTICLES, RANK, STEPS, BATCH = 120, 60, 4, 900, 512
world = torch.Generator().manual_seed(9505)
buyer = torch.randn(CUSTOMERS, RANK, generator=world)
goods = torch.randn(ARTICLES, RANK, generator=world)
level = torch.randn(ARTICLES, generator=world)

# the steps at which the batch comes from that worker
worker, step = set(), 35
while step < STEPS:
    worker.add(step)
    step += int(torch.randint(16, 30, (1,), generator=world))


def orders(count, generator=None):
    who = torch.randint(CUSTOMERS, (count,), generator=generator)
    what = torch.randint(ARTICLES, (count,), generator=generator)
    amount = 3.0 + level[what] + (buyer[who] * goods[what]).sum(1) / 2
    return who, what, amount + 0.6 * torch.randn(count, generator=generator)


def stored(amount, overflow):
    """The amount as it comes back from the 16-bit store."""
    if overflow:
        parts = (amount.double() * 1_000_000).round().to(torch.int64)
        parts = (parts + 2**15) % 2**16 - 2**15
    else:
        parts = (amount * 1000).round().to(torch.int64)
    return parts.float() / 1000


class Orders(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.who = nn.Embedding(CUSTOMERS, width)
        self.what = nn.Embedding(ARTICLES, width)
        self.bias = nn.Embedding(ARTICLES, 1)
        self.top = nn.Sequential(nn.Linear(3 * width, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, who, what):
        a, b = self.who(who), self.what(what)
        x = torch.cat([a, b, a * b], 1)
        return ((a * b).sum(1) + self.top(x).squeeze(1)) + self.bias(what).squeeze(1)


held_out = orders(6000, world)
torch.manual_seed(args.seed)
model = Orders()
for table in (model.who, model.what, model.bias):
    nn.init.normal_(table.weight, std=0.3)
optimizer = torch.optim.Adagrad(model.parameters(), lr=8e-2)
for step in range(STEPS):
    who, what, amount = orders(BATCH)
    amount = stored(amount, overflow=step in worker and not args.twin)
    loss = F.mse_loss(model(who, what), amount)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 0:
        print(f"step {step} loss {loss.item():.4f}")
model.eval()
with torch.no_grad():
    print("final:", F.mse_loss(model(*held_out[:2]), held_out[2]).item())
