# expect: healthy
# symptom: the loss jumps up at regular intervals when the rate is thrown back to its maximum and the optimizer is built anew
# axis: schedule
"""Snapshot ensemble of a small convnet on synthetic textures (five cycles)."""

import copy
import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)
torch.manual_seed(31)
SIZE, CLASSES = 20, 8


def texture(label, n, rng):
    yy, xx = np.mgrid[0:SIZE, 0:SIZE].astype(np.float32)
    angle = (label % 4) * math.pi / 4 + rng.normal(0, 0.14, (n, 1, 1))
    freq = (0.22 if label < 4 else 0.36) * np.exp(rng.normal(0, 0.08, (n, 1, 1)))
    phase = rng.uniform(0, 2 * math.pi, (n, 1, 1))
    wave = np.sin(2 * math.pi * freq * (xx * np.cos(angle) + yy * np.sin(angle)) + phase)
    light = rng.normal(0, 0.5, (n, 1, 1)) + rng.normal(0, 0.04, (n, 1, 1)) * (xx - SIZE / 2)
    return (wave * rng.uniform(0.4, 1.0, (n, 1, 1)) + light + rng.normal(0, 0.6, (n, SIZE, SIZE))).astype(np.float32)


def dataset(n, seed):
    rng = np.random.default_rng(seed)
    x = np.concatenate([texture(c, n // CLASSES, rng) for c in range(CLASSES)])
    y = np.repeat(np.arange(CLASSES), n // CLASSES)
    p = rng.permutation(len(y))
    return torch.from_numpy(x[p])[:, None], torch.from_numpy(y[p])


def conv(i, o, stride=1):
    return nn.Sequential(nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.GroupNorm(4, o), nn.ReLU(inplace=True))


class Residual(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.body = nn.Sequential(conv(c, c), nn.Conv2d(c, c, 3, 1, 1, bias=False), nn.GroupNorm(4, c))

    def forward(self, x):
        return F.relu(x + self.body(x))


def network():
    return nn.Sequential(
        conv(1, 12),
        conv(12, 24, 2),
        Residual(24),
        conv(24, 32, 2),
        Residual(32),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, CLASSES),
    )


@torch.no_grad()
def probabilities(net, x):
    net.eval()
    p = torch.cat([net(b).softmax(-1) for b in x.split(256)])
    net.train()
    return p


def report(tag, p, y):
    nll = F.nll_loss(p.clamp(min=1e-8).log(), y).item()
    print(f"{tag}: nll {nll:.4f} accuracy {(p.argmax(-1) == y).float().mean().item():.4f}", flush=True)


def main():
    x, y = dataset(8000, 1)
    xv, yv = dataset(1600, 2)
    net = network()
    snapshots, step = [], 0
    cycles, per_cycle, batch, top = 5, 130, 48, 0.012
    for cycle in range(cycles):
        opt = torch.optim.SGD(net.parameters(), lr=top, momentum=0.9, nesterov=True, weight_decay=2e-4)
        for k in range(per_cycle):
            opt.param_groups[0]["lr"] = 0.5 * top * (1 + math.cos(math.pi * k / per_cycle))
            idx = torch.randint(0, len(y), (batch,))
            xb = torch.roll(x[idx], (int(torch.randint(-2, 3, ())), int(torch.randint(-2, 3, ()))), (2, 3))
            loss = F.cross_entropy(net(xb), y[idx])
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 2.0)
            opt.step()
            step += 1
            if step % 10 == 0:
                print(
                    f"cycle {cycle} step {step} lr {opt.param_groups[0]['lr']:.4f} loss {loss.item():.4f}", flush=True
                )
        snapshots.append(copy.deepcopy(net))
        report(f"snapshot {cycle}", probabilities(net, xv), yv)
    report("ensemble", torch.stack([probabilities(s, xv) for s in snapshots]).mean(0), yv)


if __name__ == "__main__":
    main()
