# expect: sick
# symptom: loss falls normally, then is NaN from one step to the next and stays NaN
# axis: precision
# cause: the noise schedule buffer (alphas_cumprod) is cast to float16; near t=0 it rounds to exactly 1, so 1 - alpha_bar is 0, log-SNR is infinite and its sinusoidal embedding is NaN as soon as such a timestep is drawn
# says: (alpha\w*|schedule|snr|buffer|1 ?- ?a\w*)[^.]{0,160}(half|fp16|float16|16.bit|low.precision|precision|round\w*|cast)|(half|fp16|float16|low.precision|precision|round\w*|cast)[^.]{0,160}(alpha\w*|noise schedule|snr|schedule|buffer)|log.?snr[^.]{0,100}(inf\w*|division|zero)|divi\w+ by (zero|1 ?- ?alpha)
# onset_step: 94
# fix: keep the schedule buffers in float32 (or clamp the log-SNR)
# mended: the schedule is kept in float32
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
SIZE, T = 12, 1000


def make_shapes(n, seed):
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[0:SIZE, 0:SIZE].astype(np.float32)
    out = np.full((n, 1, SIZE, SIZE), -1.0, dtype=np.float32)
    for i in range(n):
        cy, cx, r = rng.uniform(4, 8), rng.uniform(4, 8), rng.uniform(2, 3.5)
        if rng.random() < 0.5:
            inside = (yy - cy) ** 2 + (xx - cx) ** 2 < r * r
        else:
            inside = (abs(yy - cy) < r * 0.85) & (abs(xx - cx) < r * 0.85)
        out[i, 0][inside] = 1.0
    return torch.tensor(out)


class NoiseSchedule(nn.Module):
    def __init__(self, steps=T, lo=1e-4, hi=0.02):
        super().__init__()
        betas = torch.linspace(lo, hi, steps)
        self.register_buffer("alphas_cumprod", torch.cumprod(1 - betas, 0))

    def forward(self, x0, t, noise):
        ab = self.alphas_cumprod[t]
        a, s = ab.sqrt().float(), (1 - ab).sqrt().float()
        logsnr = torch.log(ab / (1 - ab)).float()
        return a.view(-1, 1, 1, 1) * x0 + s.view(-1, 1, 1, 1) * noise, logsnr


def fourier(v, dim):
    freqs = torch.exp(torch.linspace(-3.0, 2.0, dim // 2))
    arg = v[:, None] * freqs
    return torch.cat([arg.sin(), arg.cos()], 1)


class ResBlock(nn.Module):
    def __init__(self, c, emb):
        super().__init__()
        self.n1, self.n2 = nn.GroupNorm(4, c), nn.GroupNorm(4, c)
        self.c1, self.c2 = nn.Conv2d(c, c, 3, padding=1), nn.Conv2d(c, c, 3, padding=1)
        self.film = nn.Linear(emb, 2 * c)

    def forward(self, x, e):
        scale, shift = self.film(e)[:, :, None, None].chunk(2, 1)
        h = self.c1(F.silu(self.n1(x)))
        h = self.n2(h) * (1 + scale) + shift
        return x + self.c2(F.silu(h))


class Denoiser(nn.Module):
    def __init__(self, c=32, emb=64, blocks=3):
        super().__init__()
        self.emb = emb
        self.time = nn.Sequential(nn.Linear(emb, emb), nn.SiLU(), nn.Linear(emb, emb), nn.SiLU())
        self.inp = nn.Conv2d(1, c, 3, padding=1)
        self.blocks = nn.ModuleList(ResBlock(c, emb) for _ in range(blocks))
        self.out = nn.Conv2d(c, 1, 3, padding=1)
        nn.init.zeros_(self.out.weight)

    def forward(self, x, logsnr):
        e = self.time(fourier(logsnr, self.emb))
        h = self.inp(x)
        for blk in self.blocks:
            h = blk(h, e)
        return self.out(F.silu(h))


def main():
    torch.manual_seed(5)
    data = make_shapes(4000, 1)
    held = make_shapes(256, 2)
    net = Denoiser()
    schedule = NoiseSchedule()
    if not MENDED:
        schedule = schedule.half()
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
    steps, batch = 500, 16
    g = torch.Generator().manual_seed(10)
    for step in range(steps):
        x0 = data[torch.randint(0, len(data), (batch,), generator=g)]
        t = torch.randint(0, T, (batch,), generator=g)
        noise = torch.randn(x0.shape, generator=g)
        xt, logsnr = schedule(x0, t, noise)
        loss = F.mse_loss(net(xt, logsnr), noise)
        opt.zero_grad()
        loss.backward()
        gn = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        if step % 20 == 0:
            print(f"step {step:4d} loss {loss.item():.4f} gnorm {gn.item():.3f}", flush=True)

    net.eval()
    with torch.no_grad():
        t = torch.arange(len(held)) * (T - 20) // len(held) + 10
        noise = torch.randn(held.shape, generator=torch.Generator().manual_seed(9))
        xt, logsnr = schedule(held, t, noise)
        print(f"held-out mse {F.mse_loss(net(xt, logsnr), noise).item():.4f}")


if __name__ == "__main__":
    main()
