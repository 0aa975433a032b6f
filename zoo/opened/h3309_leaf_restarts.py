# expect: healthy
# symptom: the learning rate jumps up 50-fold three times and the loss rises after it; resembles an instability
# axis: none
"""Leaf texture classifier with warm restarts; snapshots at the end of every cycle are averaged as an ensemble."""

import copy
import math

import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(41)

SIDE, CLASSES, CYCLES, PER_CYCLE, BATCH = 16, 6, 4, 75, 48
HIGH, LOW = 0.2, 0.004


class Leaves(Dataset):
    """Oriented gratings under a soft blob; the class is the orientation and the pitch."""

    def __init__(self, n, seed, augment):
        g = torch.Generator().manual_seed(seed)
        self.y = torch.randint(0, CLASSES, (n,), generator=g)
        axis = torch.linspace(-1, 1, SIDE)
        yy, xx = torch.meshgrid(axis, axis, indexing="ij")
        ang = math.pi * (self.y % 3).float() / 3 + 0.2 * torch.randn(n, generator=g)
        freq = torch.where(self.y < 3, 6.0, 10.0) + 0.5 * torch.randn(n, generator=g)
        phase = 6.28 * torch.rand(n, generator=g)
        u = xx * ang.cos()[:, None, None] + yy * ang.sin()[:, None, None]
        wave = torch.sin(freq[:, None, None] * u + phase[:, None, None])
        cx, cy = 0.6 * (torch.rand(2, n, 1, 1, generator=g) - 0.5)
        blob = torch.exp(-((xx - cx) ** 2 + (yy - cy) ** 2) / 0.5)
        self.x = (wave * blob + 0.8 * torch.randn(n, SIDE, SIDE, generator=g))[:, None]
        self.augment, self.g = augment, g

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        x = self.x[i]
        if self.augment:
            dx, dy = torch.randint(-1, 2, (2,), generator=self.g).tolist()
            x = torch.roll(x, (dy, dx), (1, 2)) * (0.9 + 0.2 * torch.rand(1, generator=self.g))
        return x, self.y[i]


def conv(cin, cout, stride):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm2d(cout), nn.ReLU())


def make_net():
    return nn.Sequential(
        conv(1, 16, 1), conv(16, 24, 2), conv(24, 32, 2), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(128, CLASSES)
    )


def lr_at(step):
    pos = (step % PER_CYCLE) / PER_CYCLE
    return LOW + 0.5 * (HIGH - LOW) * (1 + math.cos(math.pi * pos))


@torch.no_grad()
def accuracy(nets, data):
    for n in nets:
        n.eval()
    probs = sum(F.softmax(n(data.x), 1) for n in nets)
    return (probs.argmax(1) == data.y).float().mean().item()


def main():
    train, valid = Leaves(2000, 1, True), Leaves(500, 2, False)
    loader = DataLoader(
        train, batch_size=BATCH, shuffle=True, drop_last=True, generator=torch.Generator().manual_seed(3)
    )
    net = make_net()
    opt = torch.optim.SGD(net.parameters(), lr=HIGH, momentum=0.9, nesterov=True, weight_decay=5e-4)
    snapshots, step = [], 0
    while step < CYCLES * PER_CYCLE:
        for x, y in loader:
            net.train()
            for group in opt.param_groups:
                group["lr"] = lr_at(step)
            loss = F.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 15 == 0:
                print(f"step {step:4d} lr {lr_at(step):.4f} loss {loss.item():.4f}", flush=True)
            step += 1
            if step % PER_CYCLE == 0:
                snapshots.append(copy.deepcopy(net))
                print(
                    f"  cycle {len(snapshots)} accuracy {accuracy(snapshots[-1:], valid):.4f} "
                    f"ensemble {accuracy(snapshots, valid):.4f}",
                    flush=True,
                )
            if step == CYCLES * PER_CYCLE:
                break
    print(f"final ensemble accuracy {accuracy(snapshots, valid):.4f}")


if __name__ == "__main__":
    main()
