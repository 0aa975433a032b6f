# expect: healthy
# symptom: the loss goes below zero, rises again at regular intervals when the learning rate is thrown back to its maximum, and part of it is detached; NaN in the raw inputs; it resembles instability
# axis: none
# mended: none
import copy
import os

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(21)

CYCLE = 125
N_CYCLES = 4
BETA = 0.5
QUICK = os.environ.get("QUICK") == "1"


def make_table(n=6000, seed=3):
    """Numeric columns with gaps, two categorical columns, a target with input-dependent noise."""
    rng = np.random.default_rng(seed)
    num = rng.normal(size=(n, 6))
    num[:, 3] = np.exp(num[:, 3])
    cat = np.stack([rng.integers(0, 8, n), rng.integers(0, 5, n)], 1)
    effect = np.array([0.0, 0.4, -0.3, 0.8, -0.6, 0.2, 0.1, -0.9])
    mean = np.sin(1.5 * num[:, 0]) + 0.5 * num[:, 1] * (num[:, 2] > 0) + effect[cat[:, 0]] + 0.2 * np.log1p(num[:, 3])
    sd = 0.04 + 0.12 / (1 + np.exp(-2 * num[:, 4])) + 0.03 * cat[:, 1]
    y = mean + sd * rng.normal(size=n)
    gaps = rng.random(num.shape) < 0.04
    gaps[:, [0, 1, 2, 4]] = False
    num[gaps] = np.nan
    return num.astype(np.float32), cat, y.astype(np.float32)


class Prep:
    def fit(self, num):
        self.med = np.nanmedian(num, 0)
        filled = np.where(np.isnan(num), self.med, num)
        self.mu, self.sd = filled.mean(0), filled.std(0)
        return self

    def __call__(self, num):
        miss = np.isnan(num)
        z = (np.where(miss, self.med, num) - self.mu) / self.sd
        return torch.from_numpy(np.concatenate([z.clip(-4, 4), miss], 1).astype(np.float32))


class GaussianNet(nn.Module):
    def __init__(self, n_num, cards, h=80):
        super().__init__()
        self.emb = nn.ModuleList(nn.Embedding(c, 4) for c in cards)
        d = n_num + 4 * len(cards)
        self.trunk = nn.Sequential(nn.Linear(d, h), nn.SiLU(), nn.Linear(h, h), nn.SiLU())
        self.mu, self.raw = nn.Linear(h, 1), nn.Linear(h, 1)
        nn.init.zeros_(self.raw.weight)
        nn.init.zeros_(self.raw.bias)

    def forward(self, x, c):
        h = self.trunk(torch.cat([x] + [e(c[:, i]) for i, e in enumerate(self.emb)], 1))
        return self.mu(h).squeeze(1), nn.functional.softplus(self.raw(h)).squeeze(1) ** 2 + 1e-4


def gaussian_nll(mu, var, y):
    return 0.5 * (var.log() + (y - mu) ** 2 / var)


def beta_nll(mu, var, y):
    return (gaussian_nll(mu, var, y) * var.detach() ** BETA).sum() / (var.detach() ** BETA).sum()


@torch.no_grad()
def report(nets, x, c, y):
    for n in nets:
        n.eval()
    mus, vs = zip(*(n(x, c) for n in nets))
    mu = torch.stack(mus).mean(0)
    var = (torch.stack(vs) + torch.stack(mus) ** 2).mean(0) - mu**2
    z = (y - mu) / var.sqrt()
    return (
        gaussian_nll(mu, var, y).mean().item(),
        (mu - y).pow(2).mean().sqrt().item(),
        (z.abs() < 1.645).float().mean().item(),
    )


def main():
    num, cat, y = make_table()
    cut = int(0.8 * len(y))
    prep = Prep().fit(num[:cut])
    x, c, t = prep(num), torch.from_numpy(cat), torch.from_numpy(y)
    m, s = t[:cut].mean(), t[:cut].std()
    t = (t - m) / s
    loader = DataLoader(TensorDataset(x[:cut], c[:cut], t[:cut]), batch_size=128, shuffle=True, drop_last=True)
    net = GaussianNet(x.shape[1], (8, 5))
    opt = torch.optim.AdamW(net.parameters(), lr=6e-3, weight_decay=1e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, T_0=CYCLE, eta_min=1e-5)
    snapshots, step, total = [], 0, CYCLE * (1 if QUICK else N_CYCLES)
    while step < total:
        net.train()
        for xb, cb, yb in loader:
            mu, var = net(xb, cb)
            loss = beta_nll(mu, var, yb)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 2.0)
            opt.step()
            sched.step()
            step += 1
            if step % 25 == 0:
                print(f"step {step:4d} loss {loss.item():+.4f} lr {opt.param_groups[0]['lr']:.2e}")
            if step % CYCLE == 0:
                snapshots.append(copy.deepcopy(net))
                one = report([net], x[cut:], c[cut:], t[cut:])
                many = report(snapshots[-2:], x[cut:], c[cut:], t[cut:])
                print("  snapshot %d: nll %+.3f rmse %.3f cover90 %.2f" % ((len(snapshots),) + one))
                print("  mixture   : nll %+.3f rmse %.3f cover90 %.2f" % many)
                net.train()
            if step >= total:
                break


if __name__ == "__main__":
    main()
