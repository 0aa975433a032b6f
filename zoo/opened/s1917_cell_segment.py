# expect: sick
# symptom: the training loss falls nicely, but the averaged model that is evaluated segments badly to the end
# axis: harness
# cause: the EMA copy averages parameters only, its BatchNorm running statistics (buffers) stay at their initial values, so the averaged model normalises with mean 0 and variance 1 in evaluation
# says: buffer|running[-_ ]?(mean|var|stat)|(batch[- ]?norm|bn)\b[^.]*(ema|averag|copy|copied|stat|stale|initial|updat)|(ema|averag)[^.]*(batch[- ]?norm|\bbn\b|stat)
# onset_step: 1
# fix: copy the buffers of the online model to the EMA model at each update
# mended: yes
import copy
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
SIDE = 24


def microscope(n, gen):
    """Fluorescence-like frames with bright blobs over an uneven background, and cell masks."""
    yy, xx = torch.meshgrid(torch.arange(SIDE).float(), torch.arange(SIDE).float(), indexing="ij")
    mask = torch.zeros(n, SIDE, SIDE)
    for _ in range(3):
        c = 3 + (SIDE - 6) * torch.rand(2, n, 1, 1, generator=gen)
        r = 2.0 + 2.5 * torch.rand(n, 1, 1, generator=gen)
        squeeze = 0.6 + 0.8 * torch.rand(n, 1, 1, generator=gen)
        mask = torch.maximum(mask, (((xx - c[0]) * squeeze) ** 2 + (yy - c[1]) ** 2 < r**2).float())
    slope = torch.randn(2, n, 1, 1, generator=gen) * 0.8
    light = 90 + slope[0] * (xx - SIDE / 2) + slope[1] * (yy - SIDE / 2)
    image = light + 22 * mask + 9 * torch.randn(n, SIDE, SIDE, generator=gen)
    return (image / 255).unsqueeze(1), mask.unsqueeze(1)


def block(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, padding=1, bias=False),
        nn.BatchNorm2d(cout),
        nn.ReLU(),
        nn.Conv2d(cout, cout, 3, padding=1, bias=False),
        nn.BatchNorm2d(cout),
        nn.ReLU(),
    )


class TinyUNet(nn.Module):
    def __init__(self, c=8):
        super().__init__()
        self.d1, self.d2 = block(1, c), block(c, 2 * c)
        self.mid = block(2 * c, 2 * c)
        self.u2, self.u1 = block(4 * c, c), block(2 * c, c)
        self.out = nn.Conv2d(c, 1, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(F.max_pool2d(a, 2))
        m = self.mid(F.max_pool2d(b, 2))
        y = self.u2(torch.cat([F.interpolate(m, scale_factor=2), b], 1))
        y = self.u1(torch.cat([F.interpolate(y, scale_factor=2), a], 1))
        return self.out(y)


class WeightAverage:
    def __init__(self, model, decay=0.98):
        self.model = copy.deepcopy(model).eval().requires_grad_(False)
        self.decay = decay

    @torch.no_grad()
    def update(self, model):
        for avg, p in zip(self.model.parameters(), model.parameters()):
            avg.lerp_(p, 1 - self.decay)
        if MENDED:
            for avg, b in zip(self.model.buffers(), model.buffers()):
                avg.copy_(b)


def dice_bce(logits, y):
    p = torch.sigmoid(logits)
    inter = (p * y).sum((1, 2, 3))
    dice = 1 - (2 * inter + 1) / (p.sum((1, 2, 3)) + y.sum((1, 2, 3)) + 1)
    return F.binary_cross_entropy_with_logits(logits, y) + dice.mean()


@torch.no_grad()
def validate(model, x, y):
    logits = model(x)
    pred = (logits > 0).float()
    dice = (2 * (pred * y).sum() / (pred.sum() + y.sum()).clamp(min=1)).item()
    return dice_bce(logits, y).item(), dice


def main(steps=300, batch=16):
    torch.manual_seed(2)
    gen = torch.Generator().manual_seed(30)
    train_x, train_y = microscope(600, gen)
    val_x, val_y = microscope(100, gen)
    net = TinyUNet()
    averaged = WeightAverage(net)
    opt = torch.optim.AdamW(net.parameters(), lr=2e-3)
    for step in range(1, steps + 1):
        i = torch.randint(len(train_x), (batch,))
        loss = dice_bce(net(train_x[i]), train_y[i])
        opt.zero_grad()
        loss.backward()
        opt.step()
        averaged.update(net)
        if step % 20 == 0:
            vl, vd = validate(averaged.model, val_x, val_y)
            print(f"step {step:4d}  train loss {loss.item():.4f}  val loss {vl:.4f}  val dice {vd:.3f}", flush=True)


if __name__ == "__main__":
    main()
