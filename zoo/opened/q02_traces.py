# expect: healthy
# axis: none
# symptom: in the first part the learning rate grows at every step until the loss blows up
# cause: on purpose: a learning-rate range test on a copy of the net that stops when the loss has risen; the real training then starts from the untouched weights with one-cycle at a rate well below that
import copy

import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)

CFG = {"batch": 32, "low": 1e-5, "high": 3.0, "probe": 120, "epochs": 12, "samples": 1024, "seed": 8}


def traces(n, g):
    """Detector traces of five kinds, 96 samples each, at a random place and height."""
    t = np.arange(96)[None]
    y = g.integers(5, size=n)
    at = g.uniform(25, 60, (n, 1))
    d = t - at
    kinds = np.stack(
        [
            np.exp(-0.5 * (d / 4) ** 2),
            np.exp(-np.clip(d, 0, None) / 9) * (d > 0),
            np.exp(-0.5 * (d / 9) ** 2),
            np.exp(-0.5 * ((d - 7) / 3) ** 2) + np.exp(-0.5 * ((d + 7) / 3) ** 2),
            np.exp(np.clip(d, None, 0) / 9) * (d < 0),
        ]
    )
    x = g.uniform(0.8, 1.6, (n, 1)) * kinds[y, np.arange(n)] + 0.22 * g.normal(size=(n, 96))
    return torch.tensor(x, dtype=torch.float32), torch.tensor(y)


def make_net():
    return nn.Sequential(
        nn.Unflatten(1, (1, 96)),
        nn.Conv1d(1, 24, 9, stride=2, padding=4),
        nn.ReLU(),
        nn.Conv1d(24, 32, 7, stride=2, padding=3),
        nn.ReLU(),
        nn.Conv1d(32, 32, 5, padding=2),
        nn.ReLU(),
        nn.AdaptiveMaxPool1d(2),
        nn.Flatten(),
        nn.Linear(64, 5),
    )


def batches(x, y, size):
    while True:
        for part in torch.randperm(len(x)).split(size):
            yield x[part], y[part]


def one(net, opt, xb, yb):
    loss = nn.functional.cross_entropy(net(xb), yb)
    opt.zero_grad()
    loss.backward()
    opt.step()
    return loss.item()


def probe(net, x, y):
    """Raise the rate step by step, remember where the smoothed loss was lowest, stop once it has risen far above."""
    net = copy.deepcopy(net)
    opt = torch.optim.Adam(net.parameters(), lr=CFG["low"])
    grow = (CFG["high"] / CFG["low"]) ** (1 / CFG["probe"])
    smooth, best, best_lr = None, float("inf"), CFG["low"]
    for n, (xb, yb) in zip(range(CFG["probe"]), batches(x, y, CFG["batch"])):
        lr = opt.param_groups[0]["lr"]
        value = one(net, opt, xb, yb)
        smooth = value if smooth is None else 0.8 * smooth + 0.2 * value
        if smooth < best:
            best, best_lr = smooth, lr
        if n % 10 == 0:
            print(f"probe {n:3d}  lr {lr:.2e}  loss {value:.4f}", flush=True)
        if n > 20 and smooth > 2.5 * best:
            print(f"probe stopped at lr {lr:.2e}")
            break
        opt.param_groups[0]["lr"] = lr * grow
    return best_lr / 4


def train(net, x, y, top):
    opt = torch.optim.Adam(net.parameters(), lr=top)
    per_epoch = len(x) // CFG["batch"]
    cycle = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=top, total_steps=per_epoch * CFG["epochs"])
    source = batches(x, y, CFG["batch"])
    for e in range(CFG["epochs"]):
        seen = []
        for _ in range(per_epoch):
            seen.append(one(net, opt, *next(source)))
            cycle.step()
        print(f"epoch {e:2d}  lr {cycle.get_last_lr()[0]:.2e}  loss {np.mean(seen):.4f}", flush=True)


if __name__ == "__main__":
    torch.manual_seed(CFG["seed"])
    g = np.random.default_rng(CFG["seed"])
    x, y = traces(CFG["samples"], g)
    net = make_net()
    top = probe(net, x, y)
    print(f"chosen peak rate {top:.2e}")
    train(net, x, y, top)
