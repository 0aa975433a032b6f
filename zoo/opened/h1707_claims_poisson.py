# expect: healthy
# symptom: the loss is a sum and not a mean, backward runs several times before a step, gradients are cleared after the step and scaled by hand, the scheduler steps per update
# axis: none
# mended: none
import os
import time

import numpy as np
import torch
import torch.nn as nn

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(101)

N_NUM, LEVELS = 8, (12, 30, 7)
MICRO, ACCUM, UPDATES = 256, 4, 300


def make_policies(n, seed):
    """Motor policies: numbers, three category columns, exposure in years, claim counts."""
    rng = np.random.default_rng(seed)
    fixed = np.random.default_rng(77)
    w = fixed.normal(size=N_NUM) * 0.25
    effects = [0.4 * fixed.normal(size=k) for k in LEVELS]
    num = rng.normal(size=(n, N_NUM))
    cats = np.stack([rng.integers(0, k, size=n) for k in LEVELS], axis=1)
    exposure = np.clip(rng.beta(2, 1, size=n), 0.05, 1.0)
    log_rate = -1.2 + num @ w + 0.3 * np.sin(2 * num[:, 0]) * num[:, 1]
    for j, e in enumerate(effects):
        log_rate = log_rate + e[cats[:, j]]
    claims = rng.poisson(exposure * np.exp(log_rate))
    return (
        torch.tensor(num, dtype=torch.float32),
        torch.tensor(cats),
        torch.tensor(exposure, dtype=torch.float32),
        torch.tensor(claims, dtype=torch.float32),
    )


class ClaimNet(nn.Module):
    def __init__(self, d=48):
        super().__init__()
        self.embs = nn.ModuleList(nn.Embedding(k, 6) for k in LEVELS)
        for e in self.embs:
            nn.init.normal_(e.weight, std=0.1)
        self.net = nn.Sequential(
            nn.Linear(N_NUM + 6 * len(LEVELS), d), nn.SiLU(), nn.Linear(d, d), nn.SiLU(), nn.Linear(d, 1)
        )
        nn.init.zeros_(self.net[-1].weight)

    def forward(self, num, cats):
        x = torch.cat([num] + [e(cats[:, j]) for j, e in enumerate(self.embs)], dim=-1)
        return self.net(x).squeeze(-1)


def poisson_nll_sum(log_rate, exposure, claims):
    log_mu = log_rate + exposure.log()
    return (log_mu.exp() - claims * log_mu).sum()


@torch.no_grad()
def deviance(model, rows):
    num, cats, exposure, claims = rows
    mu = exposure * model(num, cats).exp()
    ratio = torch.where(claims > 0, claims * (claims.clamp_min(1) / mu).log(), torch.zeros_like(mu))
    return (2 * (ratio - claims + mu)).mean().item()


def null_deviance(train, rows):
    rate = train[3].sum() / train[2].sum()
    mu = rows[2] * rate
    c = rows[3]
    return (2 * (torch.where(c > 0, c * (c.clamp_min(1) / mu).log(), torch.zeros_like(mu)) - c + mu)).mean().item()


def main():
    train, val = make_policies(60000, 1), make_policies(8000, 2)
    model = ClaimNet()
    with torch.no_grad():
        model.net[-1].bias.fill_(float((train[3].sum() / train[2].sum()).log()))
    opt = torch.optim.Adam(model.parameters(), lr=4e-3)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=4e-3, total_steps=UPDATES)
    print(f"null deviance {null_deviance(train, val):.4f}")
    gen = torch.Generator().manual_seed(8)
    micro, total, weight, update, t0 = 0, 0.0, 0.0, 0, time.time()
    while update < UPDATES:
        idx = torch.randint(0, len(train[0]), (MICRO,), generator=gen)
        num, cats, exposure, claims = (c[idx] for c in train)
        loss = poisson_nll_sum(model(num, cats), exposure, claims)
        loss.backward()
        total += loss.item()
        weight += exposure.sum().item()
        micro += 1
        if micro % ACCUM:
            continue
        # one division by the whole group's exposure, so that every policy year counts the same
        for p in model.parameters():
            p.grad /= weight
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        opt.zero_grad()
        if update % 20 == 0:
            print(f"update {update} loss {total:.2f} lr {sched.get_last_lr()[0]:.5f} t {time.time() - t0:.1f}")
        if update % 75 == 74:
            print(f"val deviance {deviance(model, val):.4f}")
        total, weight = 0.0, 0.0
        update += 1


if __name__ == "__main__":
    main()
