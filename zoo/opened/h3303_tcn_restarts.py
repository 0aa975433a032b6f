# expect: healthy
# symptom: the loss jumps up at every warm restart of the learning rate; resembles spikes from instability
# axis: schedule
"""Machine state labelling in a multichannel signal: dilated TCN, SGD with warm restarts, snapshot ensemble."""

import copy

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.lr_scheduler import CosineAnnealingWarmRestarts

torch.set_num_threads(1)
STATES, CHANNELS, LENGTH = 5, 4, 80


def simulate(n, seed):
    rng = np.random.default_rng(seed)
    mix = np.random.default_rng(77).normal(0, 1, (STATES, CHANNELS))
    freq = 0.05 + 0.05 * np.arange(STATES)
    x = np.zeros((n, CHANNELS, LENGTH), dtype=np.float32)
    y = np.zeros((n, LENGTH), dtype=np.int64)
    t = np.arange(LENGTH)
    for i in range(n):
        pos = 0
        while pos < LENGTH:
            s, run = rng.integers(STATES), int(rng.integers(14, 30))
            seg = slice(pos, min(LENGTH, pos + run))
            wave = np.sin(2 * np.pi * freq[s] * t[seg] + rng.uniform(0, 6.28))
            x[i, :, seg] = 0.5 * mix[s][:, None] + mix[(s + 1) % STATES][:, None] * wave
            y[i, seg] = s
            pos += run
    x += rng.normal(0, 2.0, x.shape)
    return torch.from_numpy(x), torch.from_numpy(y)


class DilatedBlock(nn.Module):
    def __init__(self, width, dilation):
        super().__init__()
        self.conv = nn.Conv1d(width, width, 5, padding=2 * dilation, dilation=dilation)
        self.mix = nn.Conv1d(width, width, 1)
        self.norm = nn.GroupNorm(4, width)

    def forward(self, x):
        return x + self.mix(F.gelu(self.norm(self.conv(x))))


class TCN(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.inp = nn.Conv1d(CHANNELS, width, 1)
        self.blocks = nn.Sequential(*[DilatedBlock(width, d) for d in (1, 2, 4)])
        self.out = nn.Conv1d(width, STATES, 1)

    def forward(self, x):
        return self.out(self.blocks(self.inp(x)))


@torch.no_grad()
def frame_accuracy(models, x, y):
    probs = 0
    for m in models:
        m.eval()
        probs = probs + m(x).softmax(1)
        m.train()
    return (probs.argmax(1) == y).float().mean().item()


def main():
    torch.manual_seed(13)
    x, y = simulate(1500, 1)
    xv, yv = simulate(200, 2)
    net = TCN()
    opt = torch.optim.SGD(net.parameters(), lr=0.25, momentum=0.9, nesterov=True, weight_decay=5e-4)
    cycle = 100
    sched = CosineAnnealingWarmRestarts(opt, T_0=cycle, eta_min=1e-3)
    snapshots = []
    order, cursor = torch.randperm(len(x)), 0
    for step in range(1, 401):
        if cursor + 32 > len(x):
            order, cursor = torch.randperm(len(x)), 0
        idx = order[cursor : cursor + 32]
        cursor += 32
        loss = F.cross_entropy(net(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 2.0)
        opt.step()
        sched.step()
        if step % 10 == 0:
            print(f"step {step:4d}  lr {opt.param_groups[0]['lr']:.4f}  loss {loss.item():.4f}")
        if step % cycle == 0:
            snapshots.append(copy.deepcopy(net))
            single, ens = frame_accuracy([net], xv, yv), frame_accuracy(snapshots, xv, yv)
            print(f"  snapshot {len(snapshots)}: frame acc {single:.4f}, ensemble {ens:.4f}")


if __name__ == "__main__":
    main()
