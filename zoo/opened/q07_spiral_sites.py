# expect: healthy
# symptom: none (fine-tuning on other data with fresh optimizer and schedule)
# axis: none
# mended: none
"""Spiral arms lifted to 24 dimensions; training runs in two pieces through a checkpoint."""

import io
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(17)


class Spirals:
    def __init__(self, n, arms=5, twist=5.0, seed=17):
        gen = torch.Generator().manual_seed(seed)
        self.label = torch.randint(0, arms, (n,), generator=gen)
        r = torch.rand(n, generator=gen)
        ang = 2 * math.pi * self.label / arms + twist * r + 0.12 * torch.randn(n, generator=gen)
        flat = torch.stack([r * ang.cos(), r * ang.sin()], 1)
        lift = torch.randn(2, 24, generator=torch.Generator().manual_seed(2))
        self.x = flat @ lift + 0.03 * torch.randn(n, 24, generator=gen)

    def batch(self, size):
        pick = torch.randint(0, len(self.x), (size,))
        return self.x[pick], self.label[pick]


class ResMLP(nn.Module):
    def __init__(self, width=224, depth=4, classes=5):
        super().__init__()
        self.inp = nn.Linear(24, width)
        self.mid = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        h = F.relu(self.inp(x))
        for layer in self.mid:
            h = h + F.relu(layer(h))
        return self.head(h)


PEAK = 3e-3
TOTAL = 240


def setup():
    net = ResMLP()
    opt = torch.optim.Adam(net.parameters(), lr=PEAK)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=TOTAL, eta_min=1e-5)
    return net, opt, sched


def train(data, first, last, net, opt, sched):
    for step in range(first, last):
        x, y = data.batch(192)
        loss = F.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f} lr {sched.get_last_lr()[0]:.2e}")


base = Spirals(6000)
disk = io.BytesIO()

net, opt, sched = setup()
train(base, 0, TOTAL, net, opt, sched)
torch.save({"net": net.state_dict(), "step": TOTAL}, disk)
del net, opt, sched

# second part: adapt the stored network to the strongly wound set from the new site
site = Spirals(1500, twist=7.5, seed=40)
disk.seek(0)
ckpt = torch.load(disk)
net, opt, sched = setup()
net.load_state_dict(ckpt["net"])
train(site, ckpt["step"], ckpt["step"] + TOTAL, net, opt, sched)
test = Spirals(2000, twist=7.5, seed=99)
print("test accuracy", (net(test.x).argmax(1) == test.label).float().mean().item())
