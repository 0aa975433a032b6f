# expect: sick
# axis: optimizer
# symptom: the loss falls at first and then stays noisy on a plateau far above what the noise in the prices allows
# cause: the function that eats one shard of the table makes a new Adam, and a shard is only three batches, so first and second moments never live longer than three steps
# says: (optimi[sz]er|adam|moment(s|um)?\b|state).{0,200}(anew|re-?creat|re-?built|re-?init|re-?instantiat|re-?mad|made|new|every|each|per|reset|lost|discard|thrown|fresh|construct)|(new|fresh|re-?creat\w*|re-?init\w*|construct\w*|reset\w*).{0,120}(optimi[sz]er|adam|moment)
# onset_step: 1
# fix: make the optimizer once
# mended: one Adam is made once and handed to every call
import os

import numpy as np
import torch
from torch import nn

ALT = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)

ROWS_PER_SHARD = 96
BATCH = 32
LR = 1.5e-2


class Market:
    """Flats of many streets: numbers of very different scale, one street code, one price."""

    def __init__(self, streets=60, seed=0):
        self.g = np.random.default_rng(seed)
        self.level = self.g.normal(size=streets)
        self.slope = self.g.normal(size=8) / 3

    def shard(self, n):
        street = (self.g.zipf(1.3, size=n) - 1) % len(self.level)
        num = self.g.normal(size=(n, 8)).astype(np.float32)
        price = num @ self.slope + self.level[street] + 0.6 * np.sin(2 * num[:, 0]) * num[:, 1]
        price = price + 0.1 * self.g.normal(size=n)
        scale = np.array([1, 1, 1, 1, 3, 3, 0.3, 0.3], dtype=np.float32)
        return (
            torch.from_numpy(num * scale),
            torch.from_numpy(street.astype(np.int64)),
            torch.tensor(price, dtype=torch.float32),
        )


class Valuer(nn.Module):
    def __init__(self):
        super().__init__()
        self.street = nn.Embedding(60, 6)
        self.net = nn.Sequential(nn.Linear(14, 192), nn.ReLU(), nn.Linear(192, 192), nn.ReLU(), nn.Linear(192, 1))

    def forward(self, num, street):
        return self.net(torch.cat([num, self.street(street)], 1)).squeeze(1)


def tuner(model):
    return torch.optim.Adam(model.parameters(), lr=LR)


def digest(model, shard, opt=None):
    """Go once through a shard, return its mean loss."""
    opt = opt or tuner(model)
    num, street, price = shard
    total = 0.0
    for at in range(0, len(price), BATCH):
        s = slice(at, at + BATCH)
        loss = nn.functional.mse_loss(model(num[s], street[s]), price[s])
        model.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item() * len(price[s])
    return total / len(price)


def main():
    torch.manual_seed(2)
    market = Market(seed=2)
    held = market.shard(2000)
    model = Valuer()
    opt = tuner(model) if ALT else None
    recent = []
    for n in range(200):
        recent.append(digest(model, market.shard(ROWS_PER_SHARD), opt))
        if n % 20 == 19:
            print(f"shard {n + 1:3d}  loss {np.mean(recent):.4f}", flush=True)
            recent.clear()
    with torch.no_grad():
        print(f"held-out mse {nn.functional.mse_loss(model(*held[:2]), held[2]).item():.4f}")


if __name__ == "__main__":
    main()
