# expect: sick
# symptom: the loss is hardly below ln(6) and then flat: nothing is learned after the first 20 updates; no error is raised
# axis: optimizer
# cause: the warmup-and-decay schedule is given lengths in epochs (2 and 20) while advance() is called after every batch, so the learning rate reaches zero during the second epoch
# says: (schedul|learning.?rate|\blr\b|warm.?up|lambda|decay|num_training_steps).{0,200}(per.?(batch|step|iteration|update)|each (batch|step|update)|every (batch|step|update)|epochs?|zero|too (early|soon|fast|short)|units?|iterations?)
# onset_step: 20
# fix: multiply both lengths by the number of batches in an epoch (or step the schedule once per epoch)
# mended: both lengths are multiplied by the number of batches
"""Gesture recognition from accelerometer traces with a bidirectional GRU."""

import os

import numpy as np
import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"


def linear_schedule_with_warmup(optimizer, num_warmup, num_training):
    def factor(t):
        if t < num_warmup:
            return (t + 1) / max(1, num_warmup)
        return max(0.0, (num_training - t) / max(1, num_training - num_warmup))

    return LambdaLR(optimizer, factor)


def traces(n, rng, length=40):
    t = np.linspace(0, 1, length)
    kind = rng.integers(0, 6, n)
    out = np.zeros((n, length, 3))
    for i, k in enumerate(kind):
        f = 1.0 + (k % 3)
        ph = rng.uniform(0, 2 * np.pi)
        turn = 1 if k < 3 else -1
        amp = rng.uniform(0.6, 1.4)
        out[i, :, 0] = amp * np.cos(2 * np.pi * f * t + ph)
        out[i, :, 1] = amp * turn * np.sin(2 * np.pi * f * t + ph)
        out[i, :, 2] = 0.5 * np.cumsum(rng.normal(0, 0.15, length))
    out += rng.normal(0, 0.4, out.shape)
    return torch.tensor(out, dtype=torch.float32), torch.tensor(kind)


class GestureNet(nn.Module):
    def __init__(self, hidden=40):
        super().__init__()
        self.rnn = nn.GRU(3, hidden, batch_first=True, bidirectional=True)
        self.drop = nn.Dropout(0.1)
        self.cls = nn.Linear(2 * hidden, 6)

    def forward(self, x):
        h, _ = self.rnn(x)
        return self.cls(self.drop(h.mean(dim=1)))


class Fitter:
    def __init__(self, model, cfg, n_train):
        self.model, self.cfg = model, cfg
        self.per_epoch = n_train // cfg["batch"]
        self.optim = torch.optim.AdamW(model.parameters(), lr=cfg["lr"])
        unit = self.per_epoch if MENDED else 1
        self.sched = linear_schedule_with_warmup(self.optim, cfg["warmup"] * unit, cfg["epochs"] * unit)
        self.criterion = nn.CrossEntropyLoss()

    def advance(self, xb, yb):
        self.optim.zero_grad()
        loss = self.criterion(self.model(xb), yb)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optim.step()
        self.sched.step()
        return loss.item()

    def fit(self, x, y, xv, yv):
        bs = self.cfg["batch"]
        for epoch in range(self.cfg["epochs"]):
            self.model.train()
            order = torch.randperm(len(x))
            losses = [
                self.advance(x[order[k * bs : (k + 1) * bs]], y[order[k * bs : (k + 1) * bs]])
                for k in range(self.per_epoch)
            ]
            self.model.eval()
            with torch.no_grad():
                acc = (self.model(xv).argmax(1) == yv).float().mean().item()
            print(f"epoch {epoch + 1:2d}: train loss {np.mean(losses):.4f}, val acc {acc:.3f}")


def main():
    torch.manual_seed(3)
    rng = np.random.default_rng(3)
    x, y = traces(960, rng)
    xv, yv = traces(300, rng)
    cfg = dict(lr=4e-3, batch=64, epochs=20, warmup=2)
    Fitter(GestureNet(), cfg, len(x)).fit(x, y, xv, yv)


if __name__ == "__main__":
    main()
