# expect: healthy
# axis: none
# symptom: after the checkpoint is loaded the learning rate warms up again and the loss starts higher
# cause: on purpose: the second phase fine-tunes the pretrained weights on the record of another harbour, with a new optimizer and a short warm-up of its own to a lower peak
import math
import os
import tempfile

import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)

PRETRAIN = {"peak": 1e-2, "warm": 40, "total": 300, "seed": 1}
FINETUNE = {"peak": 3e-3, "warm": 20, "total": 140, "seed": 2}


def record(tides, n, seed):
    """Water level at one harbour; every harbour has tides of its own."""
    g = np.random.default_rng(seed)
    t = np.arange(n)
    level = sum(a * np.sin(2 * math.pi * t / p + f) for a, p, f in tides)
    wind = np.zeros(n)
    for i in range(2, n):
        wind[i] = 1.6 * wind[i - 1] - 0.66 * wind[i - 2] + 0.1 * g.normal()
    return torch.tensor(level + wind + 0.05 * g.normal(size=n), dtype=torch.float32)


class Causal(nn.Module):
    def __init__(self, c=24):
        super().__init__()
        layers = [nn.Conv1d(1, c, 3), nn.ReLU()]
        for d in (2, 4, 8):
            layers += [nn.Conv1d(c, c, 3, dilation=d), nn.ReLU()]
        self.body = nn.Sequential(*layers)
        self.back = nn.Linear(c, 4)

    def forward(self, x):
        return self.back(self.body(x)[:, :, -1])


def shape(cfg):
    def factor(n):
        if n < cfg["warm"]:
            return (n + 1) / cfg["warm"]
        done = (n - cfg["warm"]) / (cfg["total"] - cfg["warm"])
        return 0.5 * (1 + math.cos(math.pi * min(1.0, done)))

    return factor


def phase(name, cfg, series, net):
    g = np.random.default_rng(cfg["seed"])
    opt = torch.optim.Adam(net.parameters(), lr=cfg["peak"])
    plan = torch.optim.lr_scheduler.LambdaLR(opt, shape(cfg))
    windows = series.unfold(0, 68, 1)
    seen = []
    for n in range(cfg["total"]):
        w = windows[torch.from_numpy(g.integers(len(windows), size=32))]
        loss = nn.functional.mse_loss(net(w[:, None, :64]), w[:, 64:])
        opt.zero_grad()
        loss.backward()
        opt.step()
        plan.step()
        seen.append(loss.item())
        if n % 20 == 19:
            print(f"{name} step {n + 1:4d}  lr {plan.get_last_lr()[0]:.5f}  loss {np.mean(seen[-20:]):.4f}", flush=True)
    return net


def pretrain(path):
    torch.manual_seed(PRETRAIN["seed"])
    north = record([(1.0, 24.8, 0.3), (0.6, 12.4, 1.0), (0.4, 51.3, 2.0)], 7000, 10)
    net = phase("north", PRETRAIN, north, Causal())
    torch.save(net.state_dict(), path)


def finetune(path):
    torch.manual_seed(FINETUNE["seed"])
    south = record([(0.8, 23.9, 1.3), (0.9, 11.9, 0.2), (0.5, 6.2, 0.7)], 1500, 11)
    net = Causal()
    net.load_state_dict(torch.load(path))
    phase("south", FINETUNE, south, net)


if __name__ == "__main__":
    path = os.path.join(tempfile.mkdtemp(), "north.pt")
    pretrain(path)
    finetune(path)
