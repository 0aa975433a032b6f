# expect: healthy
# symptom: resembles wrong batching and a suspicious optimizer: rare ten times bigger batches, tiny learning rate, sign updates, large weight decay, high loss floor from label smoothing
# axis: optimizer
"""Keyword spotting on synthetic audio with a Lion optimizer and length-bucketed batches."""

import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(77)
SR, CLASSES = 4000, 8
g = np.random.default_rng(77)


class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0):
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


def utter(label, seconds):
    n = int(SR * seconds)
    t = np.arange(n) / SR
    f0 = 200 + 90 * (label % 4) + g.normal(0, 8)
    sweep = 350 if label >= 4 else -120
    tone = np.sin(2 * np.pi * (f0 * t + 0.5 * sweep * t**2)) + 0.5 * np.sin(4 * np.pi * f0 * t)
    env = np.exp(-(((t - seconds * g.uniform(0.35, 0.65)) / (0.3 * seconds)) ** 2))
    return (g.uniform(0.5, 1.5) * env * tone + 0.25 * g.normal(size=n)).astype("float32")


def corpus(n, short_share):
    labels = g.integers(0, CLASSES, n)
    secs = np.where(g.random(n) < short_share, 0.25, 0.75)
    return [(torch.from_numpy(utter(y, s)), int(y)) for y, s in zip(labels, secs)]


def make_batches(items, longs=24, shorts=240):
    """Clips of the same length share a batch; short clips are packed ten times denser."""
    buckets = {}
    for wav, y in items:
        buckets.setdefault(len(wav), []).append((wav, y))
    out = []
    for length, rows in buckets.items():
        size = shorts if length < SR // 2 else longs
        order = g.permutation(len(rows))
        for i in range(0, len(order), size):
            pick = [rows[j] for j in order[i : i + size]]
            out.append((torch.stack([w for w, _ in pick]), torch.tensor([y for _, y in pick])))
    g.shuffle(order := np.arange(len(out)))
    return [out[i] for i in order]


class Spotter(nn.Module):
    def __init__(self, ch=48):
        super().__init__()
        self.register_buffer("win", torch.hann_window(128))
        self.stem = nn.Conv1d(65, ch, 3, padding=1)
        self.body = nn.ModuleList(
            nn.Sequential(
                nn.GroupNorm(4, ch),
                nn.SiLU(),
                nn.Conv1d(ch, ch, 5, padding=2 * d, dilation=d, groups=ch),
                nn.Conv1d(ch, ch, 1),
            )
            for d in (1, 2, 4)
        )
        self.head = nn.Linear(2 * ch, CLASSES)

    def forward(self, wav):
        spec = torch.stft(wav, 128, hop_length=32, window=self.win, return_complex=True).abs()
        h = self.stem(torch.log1p(spec))
        for b in self.body:
            h = h + b(h)
        return self.head(torch.cat([h.mean(-1), h.amax(-1)], 1))


train, dev = corpus(2200, 0.12), corpus(300, 0.12)
net = Spotter()
opt = Lion(net.parameters(), lr=4e-4, weight_decay=0.5)
EPOCHS, step = 5, 0
total = EPOCHS * len(make_batches(train))
sched = torch.optim.lr_scheduler.LambdaLR(
    opt, lambda s: min(1.0, (s + 1) / 30) * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * s / total)))
)

for epoch in range(EPOCHS):
    for wav, y in make_batches(train):
        step += 1
        loss = F.cross_entropy(net(wav), y, label_smoothing=0.1)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step % 20 == 0:
            print(f"step {step} batch {len(y)} loss {loss.item():.3f} lr {sched.get_last_lr()[0]:.1e}")
    net.eval()
    with torch.no_grad():
        right = sum((net(w).argmax(1) == y).sum().item() for w, y in make_batches(dev))
    net.train()
    print(f"epoch {epoch} dev accuracy {right / len(dev):.3f}")
