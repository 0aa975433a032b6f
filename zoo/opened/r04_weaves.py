# expect: sick
# axis: model
# symptom: the loss falls, then from one step to the next it is NaN and stays NaN
# cause: after each thinning the filters are scaled back to the norm they had; a filter that was cut away entirely has norm 0 afterwards, the ratio is x/0 and 0 times inf gives NaN weights
# says: (prun|thin|mask|filter|rescal|scal|norm|cut|weight).{0,250}(divi\w+ by (0|zero)|0\s*/\s*0|/\s*0|zero|\binf|all.?zero|nan)|(divi\w+ by (0|zero)|zero norm|norm (of|is) (0|zero)).{0,200}
# onset_step: 285
# fix: do not divide by a norm of 0
# mended: the norm after the cut is kept away from 0 before the division
import os

import numpy as np
import torch
from torch import nn

ALT = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
FLOOR = 1e-6 if ALT else 0.0


def weaves(n, g):
    """Cloth patches 24x24 of four weaves, each with its own thread count, tilt and grain."""
    yy, xx = np.mgrid[0:24, 0:24]
    kind = g.integers(4, size=n)
    out = np.empty((n, 1, 24, 24), dtype=np.float32)
    for i, k in enumerate(kind):
        f = g.uniform(0.55, 0.75)
        a, b = g.uniform(0, 6.28, 2)
        warp, weft = np.sin(f * xx + a), np.sin(f * yy + b)
        cloth = [warp * weft, np.sin(f * (xx + yy) + a), np.maximum(warp, weft), np.sin(f * (xx - yy) + b)][k]
        out[i, 0] = cloth + 1.3 * g.normal(size=(24, 24))
    return torch.from_numpy(out), torch.from_numpy(kind)


class Loupe(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(1, 16, 5, stride=2, padding=2)
        self.b = nn.Conv2d(16, 32, 3, stride=2, padding=1)
        self.c = nn.Conv2d(32, 32, 3, padding=1)
        self.head = nn.Linear(32, 4)

    def forward(self, x):
        for conv in (self.a, self.b, self.c):
            x = torch.relu(conv(x))
        return self.head(x.mean((2, 3)))


class Thinner:
    """Keeps the larger part of the conv weights, more sparsely as time goes on; filters keep their gain."""

    def __init__(self, net, start, every, last):
        self.convs = [m for m in net.modules() if isinstance(m, nn.Conv2d)]
        self.start, self.every, self.last = start, every, last

    def share(self, step):
        t = min(1.0, (step - self.start) / (self.last - self.start))
        return 0.95 * t

    @torch.no_grad()
    def __call__(self, step):
        if step <= self.start or step % self.every:
            return
        for conv in self.convs:
            w = conv.weight
            gain = w.flatten(1).norm(dim=1)
            limit = torch.quantile(w.abs().flatten(), self.share(step))
            w.mul_(w.abs() > limit)
            left = w.flatten(1).norm(dim=1).clamp(min=FLOOR)
            w.mul_((gain / left).view(-1, 1, 1, 1))


def main():
    torch.manual_seed(31)
    g = np.random.default_rng(31)
    x, y = weaves(1600, g)
    net = Loupe()
    opt = torch.optim.AdamW(net.parameters(), lr=3e-3, weight_decay=0.05)
    thin = Thinner(net, start=60, every=15, last=300)
    for step in range(360):
        pick = torch.randint(len(x), (32,))
        loss = nn.functional.cross_entropy(net(x[pick]), y[pick])
        opt.zero_grad()
        loss.backward()
        opt.step()
        thin(step)
        if step % 15 == 0:
            print(f"step {step:3d}  loss {loss.item():.4f}", flush=True)
    with torch.no_grad():
        x, y = weaves(400, g)
        print(f"held out loss {nn.functional.cross_entropy(net(x), y).item():.4f}")


if __name__ == "__main__":
    main()
