# expect: healthy
# symptom: the loss is bumpy and goes up again three times, each time just after it had reached its lowest level, when the learning rate jumps from near 0 to its very high maximum
# axis: none
# mended: none
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(5)
rng = np.random.default_rng(5)

CLASSES, LENGTH, CYCLES, CYCLE = 6, 96, 4, 130
BATCH = 128


def machine_signals(n):
    """Vibration snippets: the class sets the pair of resonances and the modulation."""
    y = rng.integers(0, CLASSES, n)
    t = np.arange(LENGTH) / LENGTH
    f1, f2 = np.array([5, 6, 7, 8, 9, 10])[y], np.array([14, 17, 15, 18, 16, 13])[y]
    ph = rng.uniform(0, 2 * np.pi, (2, n, 1))
    x = np.sin(2 * np.pi * f1[:, None] * t + ph[0]) + 0.7 * np.sin(2 * np.pi * f2[:, None] * t + ph[1])
    x = x * rng.uniform(0.6, 1.4, (n, 1)) + 1.6 * rng.normal(size=(n, LENGTH))
    return torch.from_numpy(x[:, None].astype(np.float32)), torch.from_numpy(y)


class ResBlock(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.c1, self.c2 = nn.Conv1d(i, o, 7, stride=2, padding=3), nn.Conv1d(o, o, 5, padding=2)
        self.b1, self.b2 = nn.BatchNorm1d(o), nn.BatchNorm1d(o)
        self.skip = nn.Conv1d(i, o, 1, stride=2)

    def forward(self, x):
        h = self.b2(self.c2(F.relu(self.b1(self.c1(x)))))
        return F.relu(h + self.skip(x))


def make_net():
    return nn.Sequential(
        ResBlock(1, 24),
        ResBlock(24, 40),
        ResBlock(40, 48),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Linear(48, CLASSES),
    )


@torch.no_grad()
def probs(net, x):
    net.eval()
    p = net(x).softmax(1)
    net.train()
    return p


def main():
    xtr, ytr = machine_signals(6000)
    xva, yva = machine_signals(800)
    net = make_net()
    opt = torch.optim.SGD(net.parameters(), lr=0.8, momentum=0.9, nesterov=True, weight_decay=5e-4)
    sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, T_0=CYCLE, eta_min=1e-4)
    snapshots, t0 = [], time.time()
    for step in range(CYCLES * CYCLE):
        i = torch.from_numpy(rng.integers(0, len(xtr), BATCH))
        loss = F.cross_entropy(net(xtr[i]), ytr[i])
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step % 10 == 0:
            print(f"step {step:4d}  lr {sched.get_last_lr()[0]:.4f}  loss {loss.item():.4f}")
        if (step + 1) % CYCLE == 0:
            snapshots.append(probs(net, xva))
            one = (snapshots[-1].argmax(1) == yva).float().mean().item()
            ens = (torch.stack(snapshots).mean(0).argmax(1) == yva).float().mean().item()
            print(f"cycle {len(snapshots)} snapshot acc {one:.3f}  ensemble acc {ens:.3f}")
    print(f"{time.time() - t0:.1f}s")


if __name__ == "__main__":
    main()
