# expect: sick
# symptom: very spiky loss that settles far too high; the forecast ends no better than a constant
# axis: optimizer
# cause: gradient clipping is called after optimizer.step(), so the update uses the unclipped gradient
# says: clip\w*.*(after|too late|order|no effect|ineffective)|unclipped|step\w*.*(before|ahead|prior).*clip
# onset_step: 1
# fix: call clip_grad_norm_ between backward() and optimizer.step()
# mended: the script applies that change if the environment has MENDED=1
"""Next-hour demand of shops with a GRU; the series have rare promotion bursts."""

import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
ALT = os.environ.get("MENDED") == "1"
SEED, STEPS, BATCH, WIN, MAX_NORM = 3, 400, 32, 36, 0.5


def make_series(n_shop, length, rng):
    t = np.arange(length)
    out = []
    for _ in range(n_shop):
        ph, amp = rng.uniform(0, 24), rng.uniform(0.8, 1.5)
        s = amp * np.sin(2 * np.pi * (t + ph) / 24) + 0.4 * np.sin(2 * np.pi * (t + ph) / 12)
        s = s + 0.15 * rng.standard_normal(length)
        for b in rng.choice(length, size=max(1, length // 500), replace=False):
            s[b : b + 3] += rng.pareto(1.5) * 15 + 15
        out.append(s)
    return np.asarray(out, dtype=np.float32)


class WindowSampler:
    def __init__(self, series, seed):
        self.series = torch.from_numpy(series)
        self.rng = np.random.default_rng(seed)

    def batch(self, n):
        shop = self.rng.integers(0, self.series.shape[0], n)
        at = self.rng.integers(0, self.series.shape[1] - WIN - 1, n)
        w = torch.stack([self.series[s, a : a + WIN + 1] for s, a in zip(shop, at)])
        return w[:, :-1].unsqueeze(-1), w[:, 1:]


class Forecaster(nn.Module):
    def __init__(self, hidden=40):
        super().__init__()
        self.rnn = nn.GRU(1, hidden, batch_first=True)
        self.head = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1))

    def forward(self, x):
        h, _ = self.rnn(x)
        return self.head(h).squeeze(-1)


class Trainer:
    def __init__(self, model, lr):
        self.model = model
        self.opt = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
        self.sched = torch.optim.lr_scheduler.CosineAnnealingLR(self.opt, STEPS, eta_min=lr * 0.1)

    def _clip(self):
        return nn.utils.clip_grad_norm_(self.model.parameters(), MAX_NORM)

    def update(self, x, y):
        self.opt.zero_grad()
        loss = F.mse_loss(self.model(x), y)
        loss.backward()
        for act in (self._clip, self.opt.step)[:: 1 if ALT else -1]:
            act()
        self.sched.step()
        return loss.item()


@torch.no_grad()
def typical_error(model, series):
    s = torch.from_numpy(series)
    w = torch.cat([s[:, a : a + WIN + 1] for a in range(0, s.shape[1] - WIN - 1, 12)])
    pred = model(w[:, :-1].unsqueeze(-1))[:, 12:]
    return (pred - w[:, 1:][:, 12:]).abs().median().item()


def main():
    torch.manual_seed(SEED)
    rng = np.random.default_rng(SEED)
    train, valid = make_series(30, 1500, rng), make_series(6, 400, rng)
    sampler = WindowSampler(train, SEED)
    model = Forecaster()
    trainer = Trainer(model, lr=0.1)
    naive = float(np.median(np.abs(valid - np.median(valid))))
    for step in range(1, STEPS + 1):
        loss = trainer.update(*sampler.batch(BATCH))
        if step % 20 == 0 or step <= 3:
            print(f"step {step:4d} mse {loss:.4f}")
        if step % 100 == 0:
            print(f"step {step:4d} valid median abs error {typical_error(model, valid):.4f} (constant {naive:.4f})")
    print(f"final valid median abs error {typical_error(model, valid):.4f} (constant {naive:.4f})")


if __name__ == "__main__":
    main()
