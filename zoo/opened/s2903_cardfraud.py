# expect: sick
# symptom: the loss falls normally for a few hundred steps and then becomes nan from one step to the next
# axis: loss
# cause: the hand-written focal loss takes log(p) and log(1 - p) of sigmoid probabilities without clamp or eps; as soon as a confident logit saturates the sigmoid to exactly 1, log(0) = -inf times the zero label factor gives nan
# says: (?=.*(log|focal|cross.?entropy|bce|loss))(((?=.*(sigmoid|probabilit|\bp\b|1 ?- ?p|saturat|confident))(?=.*(log ?\(? ?(of )?(exact(ly)? )?(0|zero)|log\(|saturat|-? ?inf|exactly (0|1|one|zero)|round\w* to (1|one|0|zero)|clamp|epsilon|\beps\b|numerically|underflow)))|(?=.*(clamp|\beps\b|epsilon|with.?logits|logsigmoid))(?=.*log))
# onset_step: 239
# fix: clamp the probabilities away from 0 and 1 before the logarithms (or use the logits version, logsigmoid)
# mended: yes
"""Card fraud scoring: tabular transactions, entity embeddings, focal loss for the rare class."""

import os

import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)
SEED = 77
N_MERCHANT, N_COUNTRY = 40, 12


def transactions(n, seed):
    world = np.random.default_rng(1000)
    merchant_risk = world.normal(0, 0.9, N_MERCHANT)
    country_risk = world.normal(0, 0.7, N_COUNTRY)
    rng = np.random.default_rng(seed)
    merchant = rng.integers(0, N_MERCHANT, n)
    country = rng.integers(0, N_COUNTRY, n)
    amount = rng.lognormal(3.4, 0.9, n)
    usual = rng.lognormal(3.4, 0.5, n)
    hour = rng.uniform(0, 24, n)
    gap = rng.exponential(30.0, n)
    velocity = rng.poisson(1.2, n) + (rng.random(n) < 0.06) * rng.poisson(6, n)
    ratio = amount / usual
    night = np.exp(-0.5 * ((hour - 3.0) / 2.0) ** 2)
    score = (
        -4.0
        + 0.55 * np.minimum(ratio, 12)
        + 1.6 * night
        + 0.75 * velocity
        + merchant_risk[merchant]
        + country_risk[country]
        - 0.02 * gap
    )
    y = rng.random(n) < 1 / (1 + np.exp(-1.6 * score))
    num = np.stack([amount, ratio, np.sin(hour * np.pi / 12), np.cos(hour * np.pi / 12), gap, velocity], 1)
    return num.astype(np.float32), np.stack([merchant, country], 1), y.astype(np.float32)


class FraudNet(nn.Module):
    def __init__(self, n_num, width=224):
        super().__init__()
        self.merchant = nn.Embedding(N_MERCHANT, 8)
        self.country = nn.Embedding(N_COUNTRY, 4)
        self.deep = nn.Sequential(
            nn.Linear(n_num + 12, width),
            nn.ReLU(),
            nn.Dropout(0.1),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, 1),
        )
        self.wide = nn.Linear(n_num, 1)

    def forward(self, num, cat):
        e = torch.cat([num, self.merchant(cat[:, 0]), self.country(cat[:, 1])], dim=1)
        return (self.deep(e) + self.wide(num)).squeeze(1)


class FocalLoss(nn.Module):
    """alpha-balanced focal loss (Lin et al. 2017)."""

    def __init__(self, alpha=0.6, gamma=2.0):
        super().__init__()
        self.alpha, self.gamma = alpha, gamma

    def forward(self, logits, y):
        p = torch.sigmoid(logits)
        if os.environ.get("MENDED") == "1":
            p = p.clamp(1e-6, 1 - 1e-6)
        pos = self.alpha * (1 - p) ** self.gamma * y * torch.log(p)
        neg = (1 - self.alpha) * p**self.gamma * (1 - y) * torch.log(1 - p)
        return -(pos + neg).mean()


def average_precision(score, y):
    order = np.argsort(-score)
    hit = y[order]
    prec = np.cumsum(hit) / np.arange(1, len(hit) + 1)
    return float((prec * hit).sum() / hit.sum())


def main():
    torch.manual_seed(SEED)
    x_tr, c_tr, y_tr = transactions(36000, 1)
    x_va, c_va, y_va = transactions(6000, 2)
    mean, std = x_tr.mean(0), x_tr.std(0) + 1e-6
    x_tr, x_va = (x_tr - mean) / std, (x_va - mean) / std
    x_tr, c_tr, y_tr = map(torch.from_numpy, (x_tr, c_tr, y_tr))
    x_va, c_va = torch.from_numpy(x_va), torch.from_numpy(c_va)
    print(f"fraud rate {y_tr.mean():.3f}")

    net = FraudNet(x_tr.shape[1])
    criterion = FocalLoss()
    opt = torch.optim.Adam(net.parameters(), lr=6e-4)
    step, batch = 0, 384
    ema = None
    for epoch in range(9):
        net.train()
        for idx in torch.randperm(len(y_tr)).split(batch):
            loss = criterion(net(x_tr[idx], c_tr[idx]), y_tr[idx])
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            ema = loss.item() if ema is None else 0.95 * ema + 0.05 * loss.item()
            if step % 40 == 0:
                print(f"[{step:4d}] focal {ema:.5f}")
        net.eval()
        with torch.no_grad():
            s = net(x_va, c_va).numpy()
        ap = average_precision(s, y_va) if np.isfinite(s).all() else float("nan")
        print(f"epoch {epoch}: validation AP {ap:.3f}")


if __name__ == "__main__":
    main()
