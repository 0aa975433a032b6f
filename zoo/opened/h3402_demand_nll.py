# expect: healthy
# symptom: the loss is negative and jumps up at warm restarts of a large learning rate, under bfloat16 autocast
# axis: none
"""Probabilistic demand forecast: GRU with a Gaussian head, bfloat16 autocast and warm restarts."""

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(9)

PAST, AHEAD = 48, 8


def shop_series(n, seed):
    g = np.random.default_rng(seed)
    t = np.arange(n)
    day = np.sin(2 * np.pi * t / 12 + g.uniform(0, 6.28))
    slow = np.sin(2 * np.pi * t / g.uniform(60, 90))
    noise = 0.06 * (1 + 0.8 * (slow > 0)) * g.standard_normal(n)
    return (day * g.uniform(0.6, 1.0) + 0.4 * slow + noise).astype(np.float32)


class Demand(Dataset):
    def __init__(self, n_series, seed, stride):
        self.series = [shop_series(400, seed + k) for k in range(n_series)]
        self.where = [(k, s) for k in range(n_series) for s in range(0, 400 - PAST - AHEAD, stride)]

    def __len__(self):
        return len(self.where)

    def __getitem__(self, i):
        k, s = self.where[i]
        w = torch.from_numpy(self.series[k][s : s + PAST + AHEAD])
        return w[:PAST].unsqueeze(-1), w[PAST:]


class GaussianGRU(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.gru = nn.GRU(1, hidden, batch_first=True)
        self.head = nn.Sequential(nn.Linear(hidden, 48), nn.SiLU(), nn.Linear(48, 2 * AHEAD))

    def forward(self, x):
        h, _ = self.gru(x)
        mean, log_std = self.head(h[:, -1]).float().chunk(2, dim=-1)
        return mean, log_std.clamp(-5, 2)


def nll(mean, log_std, y):
    return (0.5 * ((y - mean) / log_std.exp()) ** 2 + log_std).mean()


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    total, err, inside, n = 0.0, 0.0, 0.0, 0
    for x, y in loader:
        mean, log_std = model(x)
        total += nll(mean, log_std, y).item() * len(x)
        err += (mean - y).abs().mean().item() * len(x)
        inside += ((mean - y).abs() < 1.64 * log_std.exp()).float().mean().item() * len(x)
        n += len(x)
    model.train()
    return total / n, err / n, inside / n


def main():
    train = DataLoader(Demand(40, 0, 3), batch_size=64, shuffle=True, drop_last=True)
    val = DataLoader(Demand(8, 1000, 8), batch_size=256)
    model = GaussianGRU()
    opt = torch.optim.AdamW(model.parameters(), lr=8e-3, weight_decay=1e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, T_0=60, T_mult=2, eta_min=1e-5)
    step, last = 0, 420
    while step < last:
        for x, y in train:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                mean, log_std = model(x)
            loss = nll(mean, log_std, y)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            if step % 20 == 0:
                print(f"step {step:4d} nll {loss.item():+.4f} lr {sched.get_last_lr()[0]:.5f}")
            step += 1
            if step % 140 == 0:
                v, e, c = evaluate(model, val)
                print(f"step {step:4d} val nll {v:+.4f} mae {e:.4f} inside 90% band {c:.3f}")
            if step >= last:
                break


if __name__ == "__main__":
    main()
