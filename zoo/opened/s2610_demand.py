# expect: sick
# symptom: training is stable but the demand error stalls far above the noise level; only the first few hundred products are forecast well
# axis: precision
# cause: the product ids are packed together with the features into one bfloat16 tensor, which cannot represent integers above 256 exactly, so neighbouring ids collapse to the same embedding row
# says: (\bids?\b|indices|index\b|skus?\b|products?\b|integers?|categor\w+).{0,300}(bf16|bfloat16|half.?precision|fp16|float16|16.?bit|rounded|rounding|mantissa|\b256\b|collid|collision|lose precision|low.?precision|exactly)|(bf16|bfloat16|half.?precision|fp16|16.?bit|rounded|rounding|low.?precision).{0,250}(\bids?\b|indices|index\b|skus?\b|integers?|categor\w+|embedding row)
# onset_step: 1
# fix: pack the rows in float32 (or carry the ids in a separate integer tensor)
# mended: yes
"""Daily demand forecast for a grocery chain: embeddings for product and store plus dense features."""

import math
import os

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler

torch.set_num_threads(1)
torch.manual_seed(41)

N_SKU, N_STORE = 3000, 40
NOISE = 0.20
WIRE_DTYPE = torch.float32 if os.environ.get("MENDED") == "1" else torch.bfloat16


class SalesLog(Dataset):
    def __init__(self, n, seed):
        world = np.random.default_rng(1)
        level = world.normal(0, 0.9, N_SKU)
        elastic = -np.abs(world.normal(0.8, 0.5, N_SKU))
        amp = world.normal(0, 0.5, N_SKU)
        store = world.normal(0, 0.4, N_STORE)
        g = np.random.default_rng(seed)
        self.sku = g.integers(0, N_SKU, n)
        self.store = g.integers(0, N_STORE, n)
        self.price = g.normal(0, 1, n)
        day = g.integers(0, 365, n)
        self.s, self.c = np.sin(2 * math.pi * day / 365), np.cos(2 * math.pi * day / 365)
        self.promo = (g.random(n) < 0.15).astype(float)
        y = (
            level[self.sku]
            + store[self.store]
            + elastic[self.sku] * self.price * 0.5
            + amp[self.sku] * self.s
            + 0.6 * self.promo
        )
        self.y = torch.tensor(y + NOISE * g.normal(size=n), dtype=torch.float32)

    def __len__(self):
        return len(self.sku)

    def __getitem__(self, i):
        return i

    def fetch(self, idx):
        cols = [self.sku, self.store, self.price, self.s, self.c, self.promo]
        rows = np.stack([c[idx] for c in cols], 1)
        return torch.from_numpy(rows).to(WIRE_DTYPE), self.y[idx]


class DemandNet(nn.Module):
    def __init__(self, d=12):
        super().__init__()
        self.sku = nn.Embedding(N_SKU + 64, d)
        self.store = nn.Embedding(N_STORE, 4)
        nn.init.normal_(self.sku.weight, std=0.1)
        self.deep = nn.Sequential(nn.Linear(d + 4 + 4, 160), nn.ReLU(), nn.Linear(160, 48), nn.ReLU(), nn.Linear(48, 1))
        self.slopes = nn.Linear(d, 4)
        self.level = nn.Embedding(N_SKU + 64, 1)
        nn.init.zeros_(self.level.weight)

    def forward(self, packed):
        sku, store = packed[:, 0].long(), packed[:, 1].long()
        dense = packed[:, 2:].float()
        e = self.sku(sku)
        base = self.deep(torch.cat([e, self.store(store), dense], 1)).squeeze(1)
        return base + (self.slopes(e) * dense).sum(1) + self.level(sku).squeeze(1)


def evaluate(net, data):
    net.eval()
    se, low = [], []
    with torch.no_grad():
        for k in range(0, len(data), 4000):
            idx = np.arange(k, min(k + 4000, len(data)))
            x, y = data.fetch(idx)
            err = (net(x) - y) ** 2
            se.append(err)
            low.append(torch.from_numpy(data.sku[idx] < 200))
    net.train()
    se, low = torch.cat(se), torch.cat(low)
    return se.mean().sqrt().item(), se[low].mean().sqrt().item()


if __name__ == "__main__":
    train, valid = SalesLog(240_000, 2), SalesLog(12_000, 3)
    net = DemandNet()
    emb = [p for n, p in net.named_parameters() if n.split(".")[0] in ("sku", "store", "level")]
    rest = [p for n, p in net.named_parameters() if n.split(".")[0] not in ("sku", "store", "level")]
    opt = torch.optim.Adam([{"params": emb, "lr": 1e-2}, {"params": rest, "lr": 2e-3}])
    total = 900
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, total, eta_min=1e-5)
    loader = DataLoader(
        train,
        batch_size=1800,
        sampler=RandomSampler(train, replacement=True, num_samples=1800 * total),
        collate_fn=lambda ids: train.fetch(np.asarray(ids)),
    )
    huber = nn.HuberLoss(delta=2.0)
    avg = None
    for step, (x, y) in enumerate(loader, 1):
        loss = huber(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        avg = loss.item() if avg is None else 0.95 * avg + 0.05 * loss.item()
        if step % 90 == 0:
            print(f"[{step:4d}/{total}] huber {avg:.4f} lr {sched.get_last_lr()[0]:.5f}")
        if step % 300 == 0:
            full, top = evaluate(net, valid)
            print(f"    valid rmse all {full:.4f}  core range {top:.4f}  (noise {NOISE})")
