# expect: sick
# symptom: the partial-likelihood loss goes down smoothly but the concordance index stays below one half
# axis: loss
# cause: The Cox loss sorts patients by ascending follow-up time before the cumulative log-sum-exp, so each risk set holds those who left earlier instead of those still at risk.
# says: (?=.*(cox|partial|likelihood|risk[- ]?set|cumulative|cumsum|logcumsumexp|survival))(?=.*(ascend|descend|revers|wrong (order|direction|way|end|side)|invert|backward|flip|opposite|increasing|decreasing|earlier|already|before|still (at risk|under)|sort)).*(risk[- ]?set|at risk|sort|order|ascend|descend|logcumsumexp)
# onset_step: 1
# fix: sort by descending time so that the cumulative sum covers the patients still at risk
# mended: yes
"""DeepSurv-style relapse model on a simulated clinical cohort with censoring."""

import os
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)


@dataclass
class Config:
    patients: int = 6000
    genes: int = 40
    clinical: int = 6
    batch: int = 256
    epochs: int = 40
    lr: float = 1.5e-3
    weight_decay: float = 1e-2
    seed: int = 2024


def simulate_cohort(cfg, rng):
    genes = rng.normal(size=(cfg.patients, cfg.genes))
    genes[:, 1::2] = 0.6 * genes[:, ::2] + 0.8 * genes[:, 1::2]
    age = rng.normal(62, 9, cfg.patients)
    stage = rng.integers(1, 5, cfg.patients)
    treated = rng.random(cfg.patients) < 0.5
    marker = rng.lognormal(1.0, 0.6, cfg.patients)
    bmi = rng.normal(26, 4, cfg.patients)
    smoker = rng.random(cfg.patients) < 0.3
    hazard = (
        0.03 * (age - 62)
        + 0.5 * (stage - 2.5)
        + 0.4 * smoker
        + 0.8 * np.tanh(genes[:, 0] * genes[:, 3])
        + 0.5 * genes[:, 8]
        - 0.9 * treated * (genes[:, 12] > 0)
        + 0.02 * (bmi - 26) ** 2 / 4
    )
    relapse = 40 * (rng.exponential(size=cfg.patients) / np.exp(1.6 * hazard)) ** (1 / 1.4)
    dropout = rng.exponential(70, cfg.patients)
    months = np.minimum(np.minimum(relapse, dropout), 120.0)
    observed = relapse <= np.minimum(dropout, 120.0)
    clinical = np.stack([age, stage, treated, np.log(marker), bmi, smoker], 1).astype(float)
    x = np.concatenate([genes, clinical], 1)
    x = (x - x.mean(0)) / x.std(0)
    return (torch.tensor(x, dtype=torch.float32), torch.tensor(months, dtype=torch.float32), torch.tensor(observed))


class RiskNet(nn.Module):
    def __init__(self, cfg, width=256):
        super().__init__()
        self.genes = nn.Sequential(nn.Linear(cfg.genes, width), nn.SELU(), nn.AlphaDropout(0.1))
        self.clinical = nn.Sequential(nn.Linear(cfg.clinical, 32), nn.SELU())
        self.joint = nn.Sequential(
            nn.Linear(width + 32, width), nn.SELU(), nn.AlphaDropout(0.1), nn.Linear(width, 1, bias=False)
        )
        self.split = cfg.genes

    def forward(self, x):
        h = torch.cat([self.genes(x[:, : self.split]), self.clinical(x[:, self.split :])], 1)
        return self.joint(h).squeeze(1)


class CoxLoss(nn.Module):
    """Negative Breslow partial log-likelihood, averaged over observed events."""

    def forward(self, risk, months, observed):
        order = torch.argsort(months, descending=os.environ.get("MENDED") == "1")
        risk, observed = risk[order], observed[order]
        at_risk = torch.logcumsumexp(risk, 0)
        return (at_risk - risk)[observed].mean()


@torch.no_grad()
def concordance(model, x, months, observed):
    model.eval()
    r = model(x)
    model.train()
    comparable = observed[:, None] & (months[:, None] < months[None, :])
    better = (r[:, None] > r[None, :]).float() + 0.5 * (r[:, None] == r[None, :]).float()
    return (better[comparable].mean()).item()


def main():
    cfg = Config()
    rng = np.random.default_rng(cfg.seed)
    torch.manual_seed(cfg.seed)
    x, months, observed = simulate_cohort(cfg, rng)
    cut = cfg.patients - 1000
    held = (x[cut:], months[cut:], observed[cut:])
    print(f"{cfg.patients} patients, {observed.float().mean():.0%} relapses observed")
    model, criterion = RiskNet(cfg), CoxLoss()
    opt = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=cfg.weight_decay)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, cfg.epochs)
    step = 0
    for epoch in range(1, cfg.epochs + 1):
        perm, running, batches = torch.randperm(cut), 0.0, 0
        for idx in perm.split(cfg.batch):
            if len(idx) < cfg.batch // 2:
                continue
            loss = criterion(model(x[idx]), months[idx], observed[idx])
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 2.0)
            opt.step()
            step += 1
            running, batches = running + loss.item(), batches + 1
        sched.step()
        if epoch % 2 == 0:
            print(
                f"epoch {epoch:2d} step {step:4d} loss {running / batches:.4f} "
                f"held-out C-index {concordance(model, *held):.3f}"
            )


if __name__ == "__main__":
    main()
