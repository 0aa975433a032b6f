# expect: sick
# symptom: the fit fails: the loss dips briefly, climbs back and then sits near its start in a net that is large
# axis: model
# cause: the custom sine function keeps its saved input in one scratch buffer that the next layer overwrites
# says: scratch|workspace|(buffer|saved|custom).*(overwr|shared|reus|clobber|alias)|(shared|reus\w+) .{0,20}buffer
# onset_step: 0
# fix: save a copy of the pre-activation for the backward instead of the shared scratch buffer
# mended: the script applies that change if the environment has MENDED=1
import math
import os

import torch
import torch.nn as nn

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"
SIDE, POINTS, STEPS = 96, 1024, 400


class SineFn(torch.autograd.Function):
    """sin(w0 * x) without fresh memory for the scaled input in each call."""

    scratch = None

    @staticmethod
    def forward(ctx, x, w0):
        if SineFn.scratch is None or SineFn.scratch.shape != x.shape:
            SineFn.scratch = torch.empty_like(x)
        z = torch.mul(x, w0, out=SineFn.scratch)
        ctx.z, ctx.w0 = z.clone() if MENDED else z, w0
        return z.sin()

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.z.cos() * ctx.w0, None


class SineLayer(nn.Module):
    def __init__(self, fan_in, fan_out, w0, first=False):
        super().__init__()
        self.linear = nn.Linear(fan_in, fan_out)
        self.w0 = w0
        bound = 1 / fan_in if first else math.sqrt(6 / fan_in) / w0
        nn.init.uniform_(self.linear.weight, -bound, bound)

    def forward(self, x):
        return SineFn.apply(self.linear(x), self.w0)


class CoordNet(nn.Module):
    def __init__(self, width=96, depth=4, w0=20.0):
        super().__init__()
        layers = [SineLayer(2, width, w0, first=True)]
        layers += [SineLayer(width, width, w0) for _ in range(depth - 1)]
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(width, 3)
        bound = math.sqrt(6 / width) / w0
        nn.init.uniform_(self.head.weight, -bound, bound)

    def forward(self, xy):
        return self.head(self.body(xy))


def picture(side):
    """A smooth colour picture with rings, stripes and a bright square."""
    axis = torch.linspace(-1, 1, side)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    r = (x**2 + y**2).sqrt()
    red = 0.5 * torch.sin(9 * r) + 0.3 * x
    green = 0.5 * torch.cos(7 * x + 3 * y) * (1 - 0.5 * r)
    blue = 0.6 * ((x - 0.3).abs().clamp(max=0.3) + (y + 0.2).abs().clamp(max=0.3)) - 0.2
    xy = torch.stack([x, y], -1).reshape(-1, 2)
    return xy, torch.stack([red, green, blue], -1).reshape(-1, 3)


@torch.no_grad()
def psnr(model, xy, rgb):
    mse = sum(((model(c) - t) ** 2).sum() for c, t in zip(xy.split(POINTS), rgb.split(POINTS))) / rgb.numel()
    return 10 * math.log10(4.0 / mse.item())


def main():
    torch.manual_seed(12)
    xy, rgb = picture(SIDE)
    model = CoordNet()
    opt = torch.optim.Adam(model.parameters(), lr=3e-4)
    sched = torch.optim.lr_scheduler.StepLR(opt, 250, gamma=0.4)
    gen = torch.Generator().manual_seed(1)
    print(f"{sum(p.numel() for p in model.parameters())} parameters, {len(xy)} pixels")
    for step in range(STEPS):
        idx = torch.randint(0, len(xy), (POINTS,), generator=gen)
        loss = (model(xy[idx]) - rgb[idx]).pow(2).mean()
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        sched.step()
        if step % 25 == 0:
            print(f"step {step:4d} loss {loss.item():.5f}")
    print(f"final loss {loss.item():.5f}  psnr {psnr(model, xy, rgb):.2f} dB")


if __name__ == "__main__":
    main()
