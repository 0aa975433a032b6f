# expect: healthy
# symptom: the loss jumps up at every warm restart of the learning rate (looks like loss spikes / divergence)
# axis: schedule
"""Texture classification with SGD + warm restarts (SGDR) and snapshot ensembling."""

import copy
import numpy as np
import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingWarmRestarts

torch.set_num_threads(1)


class TextureSet(torch.utils.data.Dataset):
    """Oriented gratings: 6 orientations; contrast, frequency, phase and noise vary."""

    def __init__(self, n, seed, px=20):
        rng = np.random.RandomState(seed)
        yy, xx = np.mgrid[:px, :px] / px - 0.5
        self.y = rng.randint(0, 6, n)
        theta = self.y * np.pi / 6 + rng.normal(0, 0.10, n)
        f = rng.uniform(2.5, 5.0, n)
        ph = rng.uniform(0, 2 * np.pi, n)
        c = rng.uniform(0.4, 1.2, n)
        arg = np.cos(theta)[:, None, None] * xx + np.sin(theta)[:, None, None] * yy
        img = c[:, None, None] * np.sin(2 * np.pi * f[:, None, None] * arg + ph[:, None, None])
        img = img + rng.normal(0, 1.5, img.shape)
        self.x = torch.tensor(img[:, None], dtype=torch.float32)
        self.y = torch.tensor(self.y)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


def conv_bn(i, o, s=1):
    return nn.Sequential(nn.Conv2d(i, o, 3, s, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))


class Residual(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.a, self.b = conv_bn(c, c), nn.Sequential(nn.Conv2d(c, c, 3, 1, 1, bias=False), nn.BatchNorm2d(c))

    def forward(self, x):
        return torch.relu(x + self.b(self.a(x)))


def make_net():
    return nn.Sequential(
        conv_bn(1, 12),
        conv_bn(12, 24, 2),
        Residual(24),
        conv_bn(24, 32, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 6),
    )


@torch.no_grad()
def accuracy(nets, ds):
    p = 0
    for net in nets:
        net.eval()
        p = p + net(ds.x).softmax(1)
        net.train()
    return (p.argmax(1) == ds.y).float().mean().item()


def main():
    torch.manual_seed(7)
    train, test = TextureSet(3200, 0), TextureSet(600, 1)
    loader = torch.utils.data.DataLoader(train, batch_size=64, shuffle=True, drop_last=True)
    net = make_net()
    decay = [p for p in net.parameters() if p.ndim > 1]
    rest = [p for p in net.parameters() if p.ndim <= 1]
    opt = torch.optim.SGD(
        [{"params": decay, "weight_decay": 5e-4}, {"params": rest, "weight_decay": 0.0}],
        lr=0.25,
        momentum=0.9,
        nesterov=True,
    )
    cycle = 100
    sched = CosineAnnealingWarmRestarts(opt, T_0=cycle, T_mult=2, eta_min=1e-4)
    ends = {100, 300, 700}
    crit = nn.CrossEntropyLoss(label_smoothing=0.02)
    snapshots, step, ema = [], 0, None
    for epoch in range(14):
        for x, y in loader:
            step += 1
            loss = crit(net(x), y)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            sched.step()
            ema = loss.item() if ema is None else 0.9 * ema + 0.1 * loss.item()
            if step % 25 == 0:
                print(f"ep {epoch:2d} step {step:4d} lr {sched.get_last_lr()[0]:.4f} loss {ema:.4f}")
            if step in ends:
                snapshots.append(copy.deepcopy(net))
                print(
                    f"  cycle done: net {accuracy([net], test):.3f}, "
                    f"ensemble of {len(snapshots)} {accuracy(snapshots, test):.3f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
