# expect: sick
# symptom: training loss falls nicely, but the averaged weights used for validation and sampling stay far worse than the trained model
# axis: precision
# cause: The EMA copy of the weights is held in bfloat16, so each tiny increment (1-decay)*(w-ema) is below half a bf16 ulp and is rounded away; the averaged model gets stuck near its early values.
# says: (ema|averag|shadow).{0,250}(bf16|bfloat16|half|16.?bit|precision|round|mantissa|ulp)|(bf16|bfloat16|half.precision|16.?bit|low.precision|round\w*|mantissa).{0,250}(ema|averag|shadow)
# onset_step: 1
# fix: keep the EMA copy in float32
# mended: yes
"""DDPM on 12x12 pictures of discs, boxes and crosses (epsilon prediction, cosine schedule)."""

import copy
import math
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)

CFG = dict(
    size=12,
    T=60,
    steps=620,
    batch=32,
    lr=2.5e-3,
    width=16,
    ema_decay=0.995,
    seed=2,
    ema_dtype=torch.float32 if os.environ.get("MENDED") == "1" else torch.bfloat16,
)


def draw(n, size, gen):
    yy, xx = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    cx = torch.randint(3, size - 3, (n, 1, 1), generator=gen)
    cy = torch.randint(3, size - 3, (n, 1, 1), generator=gen)
    r = torch.randint(2, 4, (n, 1, 1), generator=gen)
    kind = torch.randint(0, 3, (n, 1, 1), generator=gen)
    dx, dy = (xx - cx).abs(), (yy - cy).abs()
    disc = (dx**2 + dy**2) <= r**2
    box = torch.maximum(dx, dy) <= r - 1
    cross = ((dx == 0) & (dy <= r)) | ((dy == 0) & (dx <= r))
    img = torch.where(kind == 0, disc, torch.where(kind == 1, box, cross))
    return img.float().mul(2).sub(1).unsqueeze(1)


def embed_t(t, dim):
    f = torch.exp(-math.log(1000.0) * torch.arange(dim // 2) / (dim // 2))
    a = t[:, None].float() * f[None]
    return torch.cat([a.sin(), a.cos()], 1)


class Block(nn.Module):
    def __init__(self, cin, cout, tdim):
        super().__init__()
        self.n1, self.c1 = nn.GroupNorm(4, cin), nn.Conv2d(cin, cout, 3, padding=1)
        self.n2, self.c2 = nn.GroupNorm(4, cout), nn.Conv2d(cout, cout, 3, padding=1)
        self.t = nn.Linear(tdim, 2 * cout)
        self.skip = nn.Conv2d(cin, cout, 1) if cin != cout else nn.Identity()

    def forward(self, x, te):
        h = self.c1(F.silu(self.n1(x)))
        scale, shift = self.t(te)[:, :, None, None].chunk(2, 1)
        h = self.n2(h) * (1 + scale) + shift
        return self.skip(x) + self.c2(F.silu(h))


class TinyUNet(nn.Module):
    def __init__(self, w, tdim=32):
        super().__init__()
        self.tdim = tdim
        self.tmlp = nn.Sequential(nn.Linear(tdim, 64), nn.SiLU(), nn.Linear(64, tdim))
        self.stem = nn.Conv2d(1, w, 3, padding=1)
        self.d1 = Block(w, w, tdim)
        self.down = nn.Conv2d(w, 2 * w, 3, stride=2, padding=1)
        self.mid = Block(2 * w, 2 * w, tdim)
        self.up = nn.Conv2d(2 * w, w, 3, padding=1)
        self.u1 = Block(2 * w, w, tdim)
        self.head = nn.Conv2d(w, 1, 3, padding=1)

    def forward(self, x, t):
        te = self.tmlp(embed_t(t, self.tdim))
        a = self.d1(self.stem(x), te)
        b = self.mid(self.down(a), te)
        b = self.up(F.interpolate(b, scale_factor=2.0, mode="nearest"))
        return self.head(F.silu(self.u1(torch.cat([a, b], 1), te)))


class Diffusion:
    def __init__(self, T):
        s = torch.linspace(0, 1, T + 1)
        f = torch.cos((s + 0.008) / 1.008 * math.pi / 2) ** 2
        self.T, self.beta = T, (1 - f[1:] / f[:-1]).clamp(max=0.98)
        self.abar = torch.cumprod(1 - self.beta, 0)

    def loss(self, net, x0, gen=None):
        t = torch.randint(0, self.T, (x0.size(0),), generator=gen)
        eps = torch.randn(x0.shape, generator=gen)
        ab = self.abar[t][:, None, None, None]
        return F.mse_loss(net(ab.sqrt() * x0 + (1 - ab).sqrt() * eps, t), eps)

    @torch.no_grad()
    def sample(self, net, n, size):
        x = torch.randn(n, 1, size, size)
        for i in reversed(range(self.T)):
            e = net(x, torch.full((n,), i))
            x0 = ((x - (1 - self.abar[i]).sqrt() * e) / self.abar[i].sqrt()).clamp(-1, 1)
            prev = self.abar[i - 1] if i else torch.tensor(1.0)
            mean = (prev.sqrt() * self.beta[i] * x0 + (1 - self.beta[i]).sqrt() * (1 - prev) * x) / (1 - self.abar[i])
            noise = torch.randn_like(x) if i else 0.0
            x = mean + ((1 - prev) / (1 - self.abar[i]) * self.beta[i]).sqrt() * noise
        return x


@torch.no_grad()
def update_average(ema, model, decay):
    for e, p in zip(ema.parameters(), model.parameters()):
        e.lerp_(p.to(e.dtype), 1.0 - decay)


def report(diff, ema, shadow, val):
    for dst, src in zip(shadow.parameters(), ema.parameters()):
        dst.data.copy_(src.data)
    with torch.no_grad():
        v = diff.loss(shadow, val, torch.Generator().manual_seed(9)).item()
    x = diff.sample(shadow, 24, CFG["size"])
    ink = (x > 0).float().mean().item()
    crisp = (x.abs() > 0.8).float().mean().item()
    print(f"    averaged model: val {v:.4f}  sample ink {ink:.3f}  crispness {crisp:.3f}", flush=True)


def main():
    torch.manual_seed(CFG["seed"])
    gen = torch.Generator().manual_seed(CFG["seed"] + 1)
    data, val = draw(6000, CFG["size"], gen), draw(400, CFG["size"], gen)
    print(f"data ink {(val > 0).float().mean():.3f}")
    diff, net = Diffusion(CFG["T"]), TinyUNet(CFG["width"])
    ema = copy.deepcopy(net).to(CFG["ema_dtype"]).requires_grad_(False)
    shadow = copy.deepcopy(net).requires_grad_(False)
    opt = torch.optim.Adam(net.parameters(), lr=CFG["lr"])
    run = None
    for step in range(1, CFG["steps"] + 1):
        x0 = data[torch.randint(0, len(data), (CFG["batch"],))]
        loss = diff.loss(net, x0)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        update_average(ema, net, CFG["ema_decay"])
        run = loss.item() if run is None else 0.95 * run + 0.05 * loss.item()
        if step % 31 == 0:
            print(f"step {step:4d}  loss {run:.4f}", flush=True)
        if step % 155 == 0:
            report(diff, ema, shadow, val)


if __name__ == "__main__":
    main()
