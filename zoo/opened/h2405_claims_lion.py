# expect: healthy
# symptom: heavy-tailed loss with rare spikes, gradient norms that jump tenfold at every 25th batch, sign updates: as if exploding
# axis: optimizer
"""Insurance claims: frequency and severity network (Poisson and gamma deviance), trained
with Lion; every 25th batch is a large audit batch, both losses summed over policies."""

import sys
from collections import namedtuple

import numpy as np
import torch

torch.set_num_threads(1)
Policies = namedtuple("Policies", "cat num exposure count amount true_rate")
CARDS = (12, 20, 5, 8)


def portfolio(n, rng):
    cat = np.stack([rng.integers(0, c, n) for c in CARDS], 1)
    age = rng.gamma(6, 7, n).clip(18, 95)
    power = rng.normal(0, 1, n)
    density = rng.exponential(1, n)
    exposure = rng.beta(3, 1, n)
    wr = np.random.default_rng(1)
    effects = [wr.normal(0, 0.35, c) for c in CARDS]
    log_rate = -1.1 + sum(e[cat[:, j]] for j, e in enumerate(effects))
    log_rate = log_rate + 0.9 * np.exp(-(age - 18) / 8) + 0.15 * power * (age < 35) + 0.2 * np.log1p(density)
    rate = np.exp(log_rate)
    count = rng.poisson(rate * exposure)
    mean = np.exp(0.2 + 0.3 * power + 0.5 * effects[1][cat[:, 1]])
    amount = np.where(count > 0, rng.gamma(np.maximum(count, 1) * 0.7, mean / 0.7), 0.0)
    num = np.stack([(age - 42) / 17, power, np.log1p(density)], 1)
    f = lambda a: torch.tensor(a, dtype=torch.float32)
    return Policies(torch.tensor(cat), f(num), f(exposure), f(count), f(amount), f(rate))


class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.98), weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(torch.sign(b1 * m + (1 - b1) * p.grad), alpha=-group["lr"])
                m.mul_(b2).add_(p.grad, alpha=1 - b2)


class ClaimsNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = torch.nn.ModuleList(torch.nn.Embedding(c, 6) for c in CARDS)
        for e in self.emb:
            torch.nn.init.normal_(e.weight, std=0.05)
        d = 6 * len(CARDS) + 3
        self.trunk = torch.nn.Sequential(
            torch.nn.Linear(d, 96), torch.nn.SiLU(), torch.nn.Linear(96, 64), torch.nn.SiLU()
        )
        self.freq, self.sev = torch.nn.Linear(64, 1), torch.nn.Linear(64, 1)

    def forward(self, p):
        h = torch.cat([e(p.cat[:, j]) for j, e in enumerate(self.emb)] + [p.num], 1)
        h = self.trunk(h)
        return self.freq(h).squeeze(1), self.sev(h).squeeze(1)


def deviances(net, p):
    log_rate, log_sev = net(p)
    mu = (log_rate.exp() * p.exposure).clamp_min(1e-8)
    poisson = 2 * (torch.xlogy(p.count, p.count) - p.count * mu.log() - p.count + mu)
    hit = p.count > 0
    mean = p.amount[hit] / p.count[hit]
    ratio = mean / log_sev[hit].exp()
    gamma = 2 * p.count[hit] * (ratio - 1 - ratio.clamp_min(1e-8).log())
    return poisson.sum(), gamma.sum()


def take(p, idx):
    return Policies(*(t[idx] for t in p))


def main(steps=800):
    rng = np.random.default_rng(8)
    torch.manual_seed(8)
    train, test = portfolio(60000, rng), portfolio(10000, rng)
    net = ClaimsNet()
    opt = Lion(net.parameters(), lr=1.2e-3, weight_decay=0.1)
    sched = torch.optim.lr_scheduler.PolynomialLR(opt, steps, power=1.0)
    for step in range(1, steps + 1):
        n = 16000 if step % 25 == 0 else 768
        batch = take(train, torch.from_numpy(rng.integers(0, 60000, n)))
        poisson, gamma = deviances(net, batch)
        opt.zero_grad()
        (poisson + gamma).backward()
        norm = torch.sqrt(sum(p.grad.pow(2).sum() for p in net.parameters()))
        opt.step()
        sched.step()
        if step % 25 in (0, 13):
            sys.stdout.write(
                f"{step:4d} n={n:5d} poisson {poisson.item() / n:.4f} gamma {gamma.item() / n:.4f} "
                f"|g| {norm.item():.0f}\n"
            )
        if step % 200 == 0:
            with torch.no_grad():
                a, b = deviances(net, test)
                r = torch.corrcoef(torch.stack([net(test)[0], test.true_rate.log()]))[0, 1].item()
            print(
                f"   test: poisson {a.item() / 10000:.4f} gamma {b.item() / 10000:.4f} "
                f"correlation with the true log rate {r:.3f}"
            )


if __name__ == "__main__":
    main()
