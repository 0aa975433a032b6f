# expect: sick
# symptom: training is fine through the first batch-size increases, then at the last ones the loss leaps up and becomes huge or non-finite
# axis: schedule
# cause: At each batch-size increase the current learning rate is multiplied by the ratio of the new batch size to the original one, so the factors compound (2*4*8 = 64x) instead of following the linear scaling rule (8x).
# says: compound|cumulat|64 ?(x|times|-?fold)|(multipl|scal|grow)\w*[\s\S]{0,160}(again|already|current|repeated|twice|on top|previous)|(base|original|initial|first|starting)[- ](batch|learning|lr|rate)[\s\S]{0,200}(multipl|\*=|current|ratio|factor)|(multipl|\*=|ratio|factor)[\s\S]{0,200}(base|original|initial|first|starting)[- ](batch|learning|lr|rate|one)|super-?linear|quadratic\w*|exponential\w*
# onset_step: 261
# fix: compute the learning rate from the base learning rate, lr = base_lr * batch / base_batch
# mended: yes
"""Galaxy morphology on simulated cut-outs; the batch grows during training as in 'don't decay the LR'."""

import math
import os
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(2)
SIZE = 24
CLASSES = ("elliptical", "spiral", "ring", "merger")
BASE_BATCH, BASE_LR = 16, 0.007
RAMP = {150: 32, 260: 64, 370: 128}
TOTAL = 470


def render(n, gen):
    lin = torch.linspace(-1, 1, SIZE)
    yy, xx = torch.meshgrid(lin, lin, indexing="ij")
    label = torch.randint(0, 4, (n,), generator=gen)
    u = lambda lo, hi: lo + (hi - lo) * torch.rand(n, 1, 1, generator=gen)
    th = u(0, math.pi)
    cx, cy = u(-0.15, 0.15), u(-0.15, 0.15)
    x = (xx - cx) * th.cos() + (yy - cy) * th.sin()
    y = -(xx - cx) * th.sin() + (yy - cy) * th.cos()
    q = u(0.5, 0.9)
    r = (x**2 + (y / q) ** 2).sqrt()
    phi = torch.atan2(y / q, x)
    core = torch.exp(-r / u(0.15, 0.3))
    arms = torch.exp(-r / 0.45) * (1 + torch.cos(2 * phi - u(7, 10) * r)) * 0.5 + 0.5 * torch.exp(-r / 0.1)
    ring = 0.6 * torch.exp(-r / 0.1) + 0.8 * torch.exp(-(((r - u(0.45, 0.6)) / 0.09) ** 2))
    d = u(0.3, 0.5)
    pair = 0.8 * torch.exp(-((x - d) ** 2 + y**2).sqrt() / 0.15) + 0.8 * torch.exp(-((x + d) ** 2 + y**2).sqrt() / 0.15)
    stack = torch.stack([core, arms, ring, pair], 1)
    img = stack[torch.arange(n), label] * u(0.8, 1.3)
    img = img + 0.12 * torch.randn(n, SIZE, SIZE, generator=gen)
    return ((img - 0.2) / 0.25).unsqueeze(1), label


def conv(cin, cout):
    layer = nn.Conv2d(cin, cout, 3, padding=1)
    nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    nn.init.zeros_(layer.bias)
    return layer


class Morph(nn.Sequential):
    def __init__(self):
        super().__init__(
            conv(1, 16),
            nn.ReLU(),
            nn.MaxPool2d(2),
            conv(16, 32),
            nn.ReLU(),
            nn.MaxPool2d(2),
            conv(32, 48),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(3),
            nn.Flatten(),
            nn.Linear(48 * 9, 64),
            nn.ReLU(),
            nn.Linear(64, len(CLASSES)),
        )


def batches(x, y, size_of, gen):
    """Endless shuffled batches whose size may change between draws."""
    pool = torch.empty(0, dtype=torch.long)
    while True:
        b = size_of()
        while len(pool) < b:
            pool = torch.cat([pool, torch.randperm(len(x), generator=gen)])
        take, pool = pool[:b], pool[b:]
        yield x[take], y[take]


@torch.no_grad()
def score(net, x, y):
    out = net(x)
    return F.cross_entropy(out, y).item(), (out.argmax(1) == y).float().mean().item()


def main():
    gen = torch.Generator().manual_seed(8)
    x, y = render(4000, gen)
    vx, vy = render(800, gen)
    net = Morph()
    opt = torch.optim.SGD(net.parameters(), lr=BASE_LR, momentum=0.9, weight_decay=1e-4)
    state = {"batch": BASE_BATCH}
    stream = batches(x, y, lambda: state["batch"], gen)
    run = None
    for step in range(TOTAL):
        if step in RAMP:
            state["batch"] = RAMP[step]
            for group in opt.param_groups:
                if os.environ.get("MENDED") == "1":
                    group["lr"] = BASE_LR * RAMP[step] / BASE_BATCH
                else:
                    group["lr"] *= RAMP[step] / BASE_BATCH
            print(f"-- step {step}: batch is now {RAMP[step]}")
        bx, by = next(stream)
        if torch.rand((), generator=gen) < 0.5:
            bx = bx.flip(-1)
        loss = F.cross_entropy(net(bx), by)
        opt.zero_grad()
        loss.backward()
        opt.step()
        run = loss.item() if run is None else 0.9 * run + 0.1 * loss.item()
        if step % 30 == 0 or step == TOTAL - 1:
            vl, va = score(net, vx, vy)
            print(f"step {step:4d} train {run:.4f} val {vl:.4f} acc {va:.3f}")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
