# expect: sick
# symptom: loss goes down by very little over the whole run and the AUC stays mediocre although the configured learning rate is sensible
# axis: optimizer
# cause: the LambdaLR function returns an absolute learning rate instead of a factor, so it is multiplied with the base lr and the real learning rate is a thousand times too small
# says: lambda\s?lr|(learning rate|\blr\b).{0,60}(too (small|low|tiny)|tiny|squared|multipl\w*|far below|orders? of magnitude|vanish|effectively zero|near(ly)? zero|much (lower|smaller))|(too (small|low|tiny)|squared|absolute|multiplied).{0,40}(learning rate|\blr\b)
# onset_step: 1
# fix: return lr / base_lr (a multiplier) from the lambda
# mended: yes
import math
import os
from dataclasses import dataclass, field

import numpy as np
import torch
from sklearn.metrics import roc_auc_score
from torch import nn

MENDED = os.environ.get("MENDED") == "1"


@dataclass
class TrainConfig:
    peak_lr: float = 2e-3
    min_lr: float = 2e-5
    warmup: int = 40
    steps: int = 600
    batch: int = 256
    weight_decay: float = 1e-3
    cards: list = field(default_factory=lambda: [12, 40, 7])
    n_num: int = 8


def simulate(cfg, n, seed=5):
    rng = np.random.default_rng(seed)
    cats = np.stack([rng.integers(0, c, n) for c in cfg.cards], 1)
    nums = rng.standard_normal((n, cfg.n_num))
    nums[:, 3] = np.exp(0.5 * nums[:, 3])
    effects = [rng.standard_normal(c) for c in cfg.cards]
    score = sum(e[cats[:, i]] for i, e in enumerate(effects)) * 0.8
    score += 1.2 * nums[:, 0] * nums[:, 1] + np.sin(2 * nums[:, 2]) - 0.6 * nums[:, 3]
    score += effects[0][cats[:, 0]] * nums[:, 4]
    y = rng.random(n) < 1 / (1 + np.exp(-1.5 * score))
    return (torch.from_numpy(cats), torch.tensor(nums, dtype=torch.float32), torch.tensor(y, dtype=torch.float32))


class PolicyNet(nn.Module):
    def __init__(self, cfg, dim=8, hidden=128):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(c, dim) for c in cfg.cards)
        width = dim * len(cfg.cards) + cfg.n_num
        self.net = nn.Sequential(
            nn.Linear(width, hidden),
            nn.SiLU(),
            nn.Dropout(0.1),
            nn.Linear(hidden, hidden),
            nn.SiLU(),
            nn.Dropout(0.1),
            nn.Linear(hidden, 1),
        )

    def forward(self, cats, nums):
        e = [t(cats[:, i]) for i, t in enumerate(self.tables)]
        return self.net(torch.cat(e + [nums], 1)).squeeze(1)


def rate_at(step, cfg):
    if step < cfg.warmup:
        return cfg.peak_lr * (step + 1) / cfg.warmup
    p = (step - cfg.warmup) / max(1, cfg.steps - cfg.warmup)
    return cfg.min_lr + 0.5 * (cfg.peak_lr - cfg.min_lr) * (1 + math.cos(math.pi * min(p, 1.0)))


def build_optim(model, cfg):
    decay = [p for p in model.parameters() if p.ndim > 1]
    plain = [p for p in model.parameters() if p.ndim <= 1]
    opt = torch.optim.AdamW(
        [
            {"params": decay, "weight_decay": cfg.weight_decay},
            {"params": plain, "weight_decay": 0.0},
        ],
        lr=cfg.peak_lr,
    )
    scale = cfg.peak_lr if MENDED else 1.0
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: rate_at(s, cfg) / scale)
    return opt, sched


@torch.no_grad()
def auc(model, data):
    model.eval()
    cats, nums, y = data
    s = roc_auc_score(y.numpy(), model(cats, nums).numpy())
    model.train()
    return s


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    cfg = TrainConfig()
    cats, nums, y = simulate(cfg, 24000)
    n = 20000
    mu, sd = nums[:n].mean(0), nums[:n].std(0)
    nums = (nums - mu) / sd
    test = (cats[n:], nums[n:], y[n:])
    model = PolicyNet(cfg)
    opt, sched = build_optim(model, cfg)
    loss_fn = nn.BCEWithLogitsLoss()
    running = None
    perm = torch.randperm(n)
    at = 0
    for step in range(1, cfg.steps + 1):
        if at + cfg.batch > n:
            perm, at = torch.randperm(n), 0
        idx = perm[at : at + cfg.batch]
        at += cfg.batch
        loss = loss_fn(model(cats[idx], nums[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        running = loss.item() if running is None else 0.95 * running + 0.05 * loss.item()
        if step % 30 == 0:
            print(f"[{step}/{cfg.steps}] loss {running:.4f}")
        if step % 150 == 0:
            print(f"[{step}/{cfg.steps}] test auc {auc(model, test):.4f}")


if __name__ == "__main__":
    main()
