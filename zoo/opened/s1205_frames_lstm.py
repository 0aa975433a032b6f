# expect: sick
# symptom: loss falls well for the first couple of hundred steps, then gets restless, spikes higher and higher and ends far above its best value
# axis: optimizer
# cause: the warmup factor (step + 1) / WARMUP is never capped at 1, so the learning rate goes on growing linearly for the whole run (20 times the peak at the end)
# says: (warm.?up|learning.?rate|\blr\b|schedul).{0,140}(cap|clamp|min\(|bound|limit|grow|increas|rise|rising|climb|never stop|ramp|too (high|large|big)|past|beyond|diverg|explod|keeps)
# onset_step: 250
# fix: min(1.0, (step + 1) / WARMUP)
# mended: the warmup factor is capped at 1
"""Frame labels for noisy formant-like sequences with a bidirectional LSTM."""

import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(23)

PHONES, BANDS, FRAMES, EPOCHS, BATCH, WARMUP = 14, 20, 40, 20, 32, 30


def utterances(n, seed):
    rng = np.random.default_rng(seed)
    tpl = np.random.default_rng(4).normal(0, 1, (PHONES, BANDS))
    x = np.zeros((n, FRAMES, BANDS), np.float32)
    y = np.zeros((n, FRAMES), np.int64)
    for i in range(n):
        t, speaker, prev = 0, rng.normal(0, 0.6, BANDS), rng.integers(PHONES)
        while t < FRAMES:
            dur = int(rng.integers(3, 8))
            prev = (prev * 3 + rng.integers(1, 4)) % PHONES
            y[i, t : t + dur] = prev
            x[i, t : t + dur] = tpl[prev] + speaker
            t += dur
        x[i] += rng.normal(0, 1.7, (FRAMES, BANDS))
    return torch.from_numpy(x), torch.from_numpy(y)


class Tagger(nn.Module):
    def __init__(self, hidden=56):
        super().__init__()
        self.inp = nn.Sequential(nn.Linear(BANDS, hidden), nn.LayerNorm(hidden), nn.ReLU())
        self.rnn = nn.LSTM(hidden, hidden, num_layers=1, batch_first=True, bidirectional=True)
        self.drop = nn.Dropout(0.1)
        self.out = nn.Linear(2 * hidden, PHONES)

    def forward(self, x):
        h, _ = self.rnn(self.inp(x))
        return self.out(self.drop(h))


def warmup(step):
    """Linear warmup over WARMUP steps, constant afterwards."""
    factor = (step + 1) / WARMUP
    return min(1.0, factor) if MENDED else factor


def evaluate(model, x, y):
    model.eval()
    with torch.no_grad():
        z = model(x)
        loss = F.cross_entropy(z.flatten(0, 1), y.flatten()).item()
        acc = (z.argmax(-1) == y).float().mean().item()
    model.train()
    return loss, acc


def main():
    x, y = utterances(960, 0)
    vx, vy = utterances(200, 1)
    loader = DataLoader(TensorDataset(x, y), batch_size=BATCH, shuffle=True, drop_last=True)
    model = Tagger()
    opt = torch.optim.Adam(model.parameters(), lr=8e-3)
    scheduler = torch.optim.lr_scheduler.LambdaLR(opt, warmup)
    step, t0 = 0, time.time()
    for epoch in range(EPOCHS):
        for bx, by in loader:
            z = model(bx)
            loss = F.cross_entropy(z.flatten(0, 1), by.flatten())
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            opt.step()
            scheduler.step()
            if step % 5 == 0:
                print(f"step {step:4d} loss {loss.item():.4f}", flush=True)
            step += 1
        vl, va = evaluate(model, vx, vy)
        print(f"epoch {epoch:2d} val loss {vl:.4f} val acc {va:.3f}", flush=True)
    print(f"done {time.time() - t0:.1f}s")


if __name__ == "__main__":
    main()
