# expect: healthy
# symptom: the loss jumps up at steps 60, 180 and 420 although it was smooth just before: the learning rate restarts there (SGDR with doubling cycles); each cycle ends lower and the test error improves from snapshot to snapshot
# axis: none
# mended: none
import copy
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(17)
rng = np.random.default_rng(17)
USERS, ITEMS, GENRES, BATCH, STEPS, T0 = 600, 400, 12, 256, 900, 60

U, V = rng.normal(0, 1, (USERS, 6)), rng.normal(0, 1, (ITEMS, 6))
GENRE = rng.integers(0, GENRES, ITEMS)
TASTE = rng.normal(0, 0.6, (USERS, GENRES))


def ratings(n):
    u, i = rng.integers(0, USERS, n), rng.integers(0, ITEMS, n)
    r = 3.5 + 0.45 * (U[u] * V[i]).sum(1) + TASTE[u, GENRE[i]] + rng.normal(0, 0.35, n)
    r = np.clip(np.round(2 * r) / 2, 0.5, 5)
    return torch.tensor(u), torch.tensor(i), torch.tensor(GENRE[i]), torch.tensor(r, dtype=torch.float32)


class NeuralCF(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.u, self.i, self.g = nn.Embedding(USERS, d), nn.Embedding(ITEMS, d), nn.Embedding(GENRES, d)
        self.bu, self.bi = nn.Embedding(USERS, 1), nn.Embedding(ITEMS, 1)
        for e in (self.u, self.i, self.g, self.bu, self.bi):
            nn.init.normal_(e.weight, std=0.1)
        self.mlp = nn.Sequential(nn.Linear(4 * d, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 1))

    def forward(self, u, i, g):
        eu, ei, eg = self.u(u), self.i(i), self.g(g)
        bias = self.bu(u) + self.bi(i)
        return (3.5 + bias + self.mlp(torch.cat([eu, ei, eg, eu * ei], -1))).squeeze(-1)


@torch.no_grad()
def predict(model, data):
    model.eval()
    p = model(*data[:3])
    model.train()
    return p


def rmse(p, r):
    return (p.clamp(0.5, 5) - r).pow(2).mean().sqrt().item()


train, test = ratings(60000), ratings(8000)
model = NeuralCF()
opt = torch.optim.AdamW(model.parameters(), lr=3e-2, weight_decay=5e-2)
sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, T_0=T0, T_mult=2, eta_min=1e-4)
snapshots, run, t0 = [], None, time.time()
for step in range(STEPS):
    k = torch.randint(0, len(train[3]), (BATCH,))
    u, i, g, r = (c[k] for c in train)
    loss = F.mse_loss(model(u, i, g), r)
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    run = loss.item() if run is None else 0.8 * run + 0.2 * loss.item()
    if step % 15 == 0:
        print(f"step {step:4d} loss {loss.item():.4f} smooth {run:.4f} lr {sched.get_last_lr()[0]:.1e}")
    if step + 1 in (T0, 3 * T0, 7 * T0, STEPS):
        snapshots.append(copy.deepcopy(model).eval())
        each = [rmse(predict(m, test), test[3]) for m in snapshots]
        print(
            f"== snapshot {len(snapshots)} at step {step}: test rmse "
            + " ".join(f"{e:.4f}" for e in each)
            + f" ({time.time() - t0:.1f}s)"
        )
last = predict(snapshots[-1], test)
print(f"== kept snapshot {len(snapshots)}: test rmse {rmse(last, test[3]):.4f}")
