# expect: sick
# symptom: fine-tuning: loss falls slowly and the accuracy on the new task stays well below what fine-tuning should give
# axis: optimizer
# cause: the classification head is replaced after the optimizer was built, so the optimizer holds the old head's parameters and the new head is never updated (stays random)
# says: (build|creat|construct|rebuild|re-?creat)\w* the optimi[sz]er after|(new|replaced|fresh|swapped|current|actual|task)?\s*(head|classifier|last layer|fc|output layer|layer|param\w*).{0,120}(not|never|isn.t|aren.t|missing|absent|lack|without|outside|stale|no longer).{0,60}(optimi[sz]er|updat|train|mov|chang|param)|optimi[sz]er.{0,140}(before|old|stale|lack|miss|not (hold|contain|include|cover|own)|doesn.t|does not|never|previous|discard|no longer|orphan|earlier)|(before|after).{0,60}(optimi[sz]er).{0,60}(built|creat|construct|head)
# onset_step: 250
# fix: build the optimizer after the head was replaced (or add the new head's parameters)
# mended: the head is replaced before the optimizer is built
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(6)
rng = np.random.default_rng(6)
T, LEADS, BATCH = 160, 3, 32
PRE_STEPS, FT_STEPS = 250, 350


def beats(n, task):
    """synthetic beats: P, QRS and T waves; task 'rhythm' (8 classes) or 'lesion' (6 classes)"""
    t = np.linspace(0, 1, T)
    k = 8 if task == "rhythm" else 6
    y = rng.integers(0, k, n)
    pos = np.array([0.25, 0.45, 0.72])[None] + rng.normal(0, 0.015, (n, 3))
    amp = np.array([0.2, 1.0, 0.35])[None] * rng.uniform(0.8, 1.2, (n, 3))
    wid = np.array([0.03, 0.014, 0.05])[None] * rng.uniform(0.85, 1.15, (n, 3))
    if task == "rhythm":
        pos[:, 0] -= 0.07 * (y & 1)
        wid[:, 1] *= 1 + 0.8 * (y >> 1 & 1)
        amp[:, 2] *= 1 - 1.6 * (y >> 2 & 1)
    else:
        amp[:, 0] *= np.where(y % 3 == 1, 2.2, 1.0)
        pos[:, 2] += np.where(y % 3 == 2, 0.07, 0.0)
        wid[:, 2] *= np.where(y >= 3, 0.55, 1.0)
    gains = rng.normal(1, 0.15, (n, LEADS, 1)) * np.array([1.0, 0.7, -0.5])[None, :, None]
    wave = sum(amp[:, j, None] * np.exp(-(((t - pos[:, j, None]) / wid[:, j, None]) ** 2)) for j in range(3))
    drift = rng.normal(0, 0.1, (n, LEADS, 1)) * np.sin(2 * np.pi * t + rng.uniform(0, 6, (n, LEADS, 1)))
    x = wave[:, None] * gains + drift + rng.normal(0, 0.06, (n, LEADS, T))
    return torch.tensor(x, dtype=torch.float32), torch.tensor(y)


class ResBlock(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.a, self.b = nn.Conv1d(c, c, 7, padding=3), nn.Conv1d(c, c, 7, padding=3)
        self.n1, self.n2 = nn.GroupNorm(4, c), nn.GroupNorm(4, c)

    def forward(self, x):
        return x + self.b(F.relu(self.n2(self.a(F.relu(self.n1(x))))))


class ECGNet(nn.Module):
    def __init__(self, n_cls, c=32):
        super().__init__()
        self.stem = nn.Conv1d(LEADS, c, 9, stride=2, padding=4)
        self.body = nn.Sequential(ResBlock(c), nn.AvgPool1d(2), ResBlock(c), nn.AvgPool1d(2), ResBlock(c))
        self.head = nn.Linear(c * 20, n_cls)

    def forward(self, x):
        return self.head(F.relu(self.body(self.stem(x))).flatten(1))

    def new_head(self, n_cls):
        self.head = nn.Linear(self.head.in_features, n_cls)


def make_optimizer(model, lr_body, lr_head):
    head = list(model.head.parameters())
    body = [p for n, p in model.named_parameters() if not n.startswith("head.")]
    return torch.optim.AdamW([{"params": body, "lr": lr_body}, {"params": head, "lr": lr_head}], weight_decay=1e-3)


@torch.no_grad()
def accuracy(model, x, y):
    return (torch.cat([model(a) for a in x.split(200)]).argmax(1) == y).float().mean().item()


def fit(model, opt, data, val, first, steps, tag):
    x, y = data
    for step in range(first, first + steps):
        i = torch.randint(0, len(x), (BATCH,))
        loss = F.cross_entropy(model(x[i]), y[i])
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if step % 20 == 0:
            print(f"{tag} step {step:4d} loss {loss.item():.4f}")
        if step % 100 == 49:
            print(f"== {tag} step {step} accuracy {accuracy(model, *val):.3f} ({time.time() - t0:.1f}s)")


t0 = time.time()
model = ECGNet(8)
fit(model, make_optimizer(model, 1e-3, 1e-3), beats(3000, "rhythm"), beats(400, "rhythm"), 0, PRE_STEPS, "pretrain")
if MENDED:
    model.new_head(6)
    opt = make_optimizer(model, 2e-5, 1e-3)
else:
    opt = make_optimizer(model, 2e-5, 1e-3)
    model.new_head(6)
lesion, lesion_val = beats(1200, "lesion"), beats(400, "lesion")
fit(model, opt, lesion, lesion_val, PRE_STEPS, FT_STEPS, "finetune")
print(f"final accuracy {accuracy(model, *lesion_val):.3f}")
