# expect: sick
# symptom: NaN from standardising a window whose channel is constant (spread 0), at a batch in mid-run
# axis: data
# cause: standardising a window whose channel is constant divides 0 by 0
# says: divi\w+|std|spread|standardi[sz]|constant|zero variance|preprocess|singular
# onset_step: 191
# fix: guard the divisor
# mended: q01_bearing.py
"""Bearing wear regression from short vibration windows of a 6 channel logger."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(11)
rng = np.random.default_rng(11)

N_WIN, CH, LEN = 8000, 6, 96


def record_session():
    """One day of the logger, moved from machine to machine; windows in order of time."""
    t = np.arange(LEN) / 96.0
    wear = rng.beta(1.5, 1.5, N_WIN)
    freq = 3.0 + 6.0 * wear[:, None] + 0.6 * np.arange(CH)[None]
    phase = rng.uniform(0, 2 * np.pi, (N_WIN, CH))
    sig = np.sin(2 * np.pi * freq[..., None] * t + phase[..., None])
    gain = rng.uniform(0.5, 4.0, (N_WIN, CH, 1))
    offs = rng.uniform(-3, 3, (N_WIN, CH, 1))
    sig = gain * sig + offs + 0.2 * rng.standard_normal((N_WIN, CH, LEN))
    # channel 4 of the logger dropped out for a moment and repeats its last value
    sig[6130:6141, 4, :] = 2.5
    wear = np.clip(wear, 0, 1)
    return torch.tensor(sig, dtype=torch.float32), torch.tensor(wear, dtype=torch.float32)


def standardise(win):
    mu = win.mean(dim=-1, keepdim=True)
    sd = win.std(dim=-1, keepdim=True)
    return (win - mu) / sd


class WearNet(nn.Module):
    def __init__(self, width=40):
        super().__init__()
        self.c1 = nn.Conv1d(CH, width, 7, padding=3)
        self.c2 = nn.Conv1d(width, width, 5, stride=2, padding=2)
        self.c3 = nn.Conv1d(width, 2 * width, 5, stride=2, padding=2)
        self.out = nn.Linear(2 * width, 1)

    def forward(self, x):
        h = F.gelu(self.c1(x))
        h = F.gelu(self.c2(h))
        h = F.gelu(self.c3(h))
        return self.out(h.mean(-1)).squeeze(-1)


windows, wear = record_session()
model = WearNet()
opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-4)
BATCH = 32
step = 0
for start in range(0, N_WIN, BATCH):
    xb = standardise(windows[start : start + BATCH])
    yb = wear[start : start + BATCH]
    pred = model(xb)
    loss = F.mse_loss(pred, yb)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    if step % 20 == 0:
        print(f"step {step:4d} loss {loss.item():.5f}")
    step += 1
print("final", loss.item())
