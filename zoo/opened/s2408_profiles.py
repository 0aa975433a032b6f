# expect: sick
# symptom: the training loss falls as usual but the averaged weights used for evaluation and sampling stay bad
# axis: precision
# cause: The EMA shadow weights are kept in bfloat16, so the tiny per-step averaging increments are rounded away and the average hardly follows the model.
# says: (?=.*(ema|averag|shadow|polyak))(?=.*(bf16|bfloat|half|low(er)?[- ]?precision|16[- ]?bit|precision|mantissa|round|swallow|dtype)).*
# onset_step: 1
# fix: keep the EMA shadow copy in float32
# mended: yes
"""Denoising diffusion on 24-hour wind-farm output profiles.

A one-dimensional residual conv net predicts the noise; an exponential moving
average of the weights is what gets evaluated, sampled and shipped.
"""

import copy
import math
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)

SHADOW_DTYPE = torch.float32 if os.environ.get("MENDED") == "1" else torch.bfloat16


def make_profiles(n, gen):
    hours = torch.arange(24.0)
    kind = torch.randint(0, 3, (n, 1), generator=gen)
    phase = torch.randn(n, 1, generator=gen) * 1.5
    amp = 0.7 + 0.3 * torch.rand(n, 1, generator=gen)
    night = torch.cos((hours - 2 - phase) * 2 * math.pi / 24)
    sea = torch.sin((hours - 9 - phase) * 2 * math.pi / 12)
    front = torch.tanh((hours - 12 - 2 * phase) / 1.5)
    x = torch.where(kind == 0, night, torch.where(kind == 1, sea, front)) * amp
    return x + 0.05 * torch.randn(n, 24, generator=gen)


class Block(nn.Module):
    def __init__(self, ch, emb):
        super().__init__()
        self.n1 = nn.GroupNorm(4, ch)
        self.c1 = nn.Conv1d(ch, ch, 5, padding=2)
        self.t = nn.Linear(emb, ch)
        self.n2 = nn.GroupNorm(4, ch)
        self.c2 = nn.Conv1d(ch, ch, 5, padding=2)

    def forward(self, x, e):
        h = self.c1(F.silu(self.n1(x))) + self.t(e)[:, :, None]
        return x + self.c2(F.silu(self.n2(h)))


class Denoiser(nn.Module):
    def __init__(self, ch=32, emb=32, depth=3):
        super().__init__()
        self.register_buffer("freq", torch.exp(torch.linspace(0, 5, emb // 2)))
        self.inp = nn.Conv1d(2, ch, 3, padding=1)
        self.emb = nn.Sequential(nn.Linear(emb, emb), nn.SiLU())
        self.blocks = nn.ModuleList(Block(ch, emb) for _ in range(depth))
        self.out = nn.Conv1d(ch, 1, 3, padding=1)

    def forward(self, x, t):
        a = t[:, None] * self.freq
        e = self.emb(torch.cat([a.sin(), a.cos()], -1))
        clock = torch.linspace(-1, 1, x.shape[1]).expand_as(x)
        h = self.inp(torch.stack([x, clock], 1))
        for b in self.blocks:
            h = b(h, e)
        return self.out(F.silu(h))[:, 0]


class WeightAverage:
    """Shadow copy of a module, updated after every optimizer step."""

    def __init__(self, model, decay):
        self.decay = decay
        self.shadow = {k: p.detach().to(SHADOW_DTYPE, copy=True) for k, p in model.named_parameters()}

    @torch.no_grad()
    def update(self, model):
        for k, p in model.named_parameters():
            s = self.shadow[k]
            s.mul_(self.decay).add_(p.to(s.dtype), alpha=1 - self.decay)

    @torch.no_grad()
    def materialise(self, model):
        twin = copy.deepcopy(model).eval()
        for k, p in twin.named_parameters():
            p.copy_(self.shadow[k])
        return twin


def alpha_sigma(t):
    return torch.cos(t * math.pi / 2), torch.sin(t * math.pi / 2)


def noise_loss(net, x, gen):
    t = torch.rand(len(x), generator=gen) * 0.98 + 0.01
    eps = torch.randn(x.shape, generator=gen)
    a, s = alpha_sigma(t[:, None])
    return F.mse_loss(net(a * x + s * eps, t), eps)


@torch.no_grad()
def sample(net, n, gen, steps=30):
    x = torch.randn(n, 24, generator=gen)
    ts = torch.linspace(0.99, 0.01, steps)
    for t, nxt in zip(ts[:-1], ts[1:]):
        a, s = alpha_sigma(t)
        eps = net(x, t.expand(n))
        clean = ((x - s * eps) / a).clamp(-1.5, 1.5)
        a2, s2 = alpha_sigma(nxt)
        x = a2 * clean + s2 * eps
    return clean


def spread_gap(a, b, gen):
    proj = F.normalize(torch.randn(24, 40, generator=gen), dim=0)
    return ((a @ proj).sort(0).values - (b @ proj).sort(0).values).abs().mean().item()


def main(steps=600, batch=48):
    torch.manual_seed(3)
    gen = torch.Generator().manual_seed(3)
    train, held = make_profiles(4096, gen), make_profiles(512, gen)
    net = Denoiser()
    ema = WeightAverage(net, decay=0.993)
    opt = torch.optim.Adam(net.parameters(), lr=2e-3, betas=(0.9, 0.99))
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, steps, eta_min=2e-4)
    for step in range(1, steps + 1):
        x = train[torch.randint(len(train), (batch,), generator=gen)]
        loss = noise_loss(net, x, gen)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        sched.step()
        ema.update(net)
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f}")
        if step % 150 == 0:
            twin = ema.materialise(net)
            g = torch.Generator().manual_seed(99)
            with torch.no_grad():
                val = noise_loss(twin, held, g).item()
            print(f"  [ema] val loss {val:.4f}  sample distance {spread_gap(sample(twin, 512, g), held, g):.4f}")


if __name__ == "__main__":
    main()
