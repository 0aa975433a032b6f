# expect: sick
# axis: optimizer
# symptom: the loss falls well in the first epochs and then rises from epoch to epoch until the net is at or below chance
# cause: when the batch grows, the rate is multiplied by batch/base at every epoch, on top of the rate already scaled, so it compounds without end instead of being base rate times batch/base
# says: (learning.?rate|\blr\b|step size|rate).{0,250}(grow|compound|multipl|increas|rise|rising|climb|explod|exponential|without (end|bound)|unbounded|too (high|large)|accumulat|keeps)|(grow|compound|multipl|increas|exponential|accumulat|keeps).{0,200}(learning.?rate|\blr\b)
# onset_step: 100
# fix: set the rate from the base rate, not from itself
# mended: the rate is set from the base rate times batch/base instead of scaling the rate in use
import os

import numpy as np
import torch
from torch import nn

ALT = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)

CFG = {
    "lr": 1.5e-3,
    "batch": 32,
    "plan": [32] * 5 + [48] * 5 + [64] * 8,  # batch of each epoch
    "seed": 4,
    "samples": 1024,
}


def pulses(n, g):
    """Detector traces of five kinds, 96 samples each, at a random place and height."""
    t = np.arange(96)
    x = np.empty((n, 96), dtype=np.float32)
    y = g.integers(5, size=n)
    for i, kind in enumerate(y):
        at, height = g.uniform(25, 60), g.uniform(0.8, 1.6)
        d = t - at
        body = {
            0: np.exp(-0.5 * (d / 4) ** 2),
            1: np.exp(-np.clip(d, 0, None) / 9) * (d > 0),
            2: np.exp(-0.5 * (d / 9) ** 2),
            3: np.exp(-0.5 * ((d - 7) / 3) ** 2) + np.exp(-0.5 * ((d + 7) / 3) ** 2),
            4: np.exp(np.clip(d, None, 0) / 9) * (d < 0),
        }[int(kind)]
        x[i] = height * body + 0.22 * g.normal(size=96)
    return torch.from_numpy(x), torch.from_numpy(y)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv1d(1, 24, 9, stride=2, padding=4),
            nn.ReLU(),
            nn.Conv1d(24, 32, 7, stride=2, padding=3),
            nn.ReLU(),
            nn.Conv1d(32, 32, 5, padding=2),
            nn.ReLU(),
        )
        self.head = nn.Linear(64, 5)

    def forward(self, x):
        h = self.conv(x[:, None])
        return self.head(torch.cat([h.amax(2), h.mean(2)], 1))


def set_batch(opt, size):
    for group in opt.param_groups:
        base = CFG["lr"] if ALT else group["lr"]
        group["lr"] = base * size / CFG["batch"]
    return size


def epoch(net, opt, x, y, size):
    total, hits = 0.0, 0
    order = torch.randperm(len(x))
    for part in order.split(size):
        out = net(x[part])
        loss = nn.functional.cross_entropy(out, y[part])
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        total += loss.item() * len(part)
        hits += (out.argmax(1) == y[part]).sum().item()
    return total / len(x), hits / len(x)


def main():
    torch.manual_seed(CFG["seed"])
    g = np.random.default_rng(CFG["seed"])
    x, y = pulses(CFG["samples"], g)
    net = Tagger()
    opt = torch.optim.Adam(net.parameters(), lr=CFG["lr"])
    for n, size in enumerate(CFG["plan"]):
        set_batch(opt, size)
        loss, acc = epoch(net, opt, x, y, size)
        print(f"epoch {n:2d}  batch {size:3d}  loss {loss:.4f}  accuracy {acc:.3f}", flush=True)
    with torch.no_grad():
        x, y = pulses(512, g)
        print(f"held out loss {nn.functional.cross_entropy(net(x), y).item():.4f}")


if __name__ == "__main__":
    main()
