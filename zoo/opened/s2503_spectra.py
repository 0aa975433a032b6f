# expect: sick
# symptom: the diffusion loss goes down normally for some hundred steps and is then NaN from one step to the next
# axis: loss
# cause: the min-SNR loss weight divides by the SNR, which is exactly zero at the last timestep of the zero-terminal-SNR schedule, so that 0/0 gives NaN as soon as this timestep is drawn
# says: (snr|signal.to.noise|terminal|last timestep|final timestep)[^.]*(zero|\b0\b|0/0|divi)|(zero|0/0|divi)[^.]*(snr|signal.to.noise|terminal|last timestep|final timestep)
# onset_step: 278
# fix: use the v-prediction form of the weight, min(snr, gamma) / (snr + 1), which is finite at zero SNR
# mended: yes
"""v-prediction diffusion on synthetic emission spectra, zero terminal SNR, min-SNR weighting."""

import argparse
import math
import os

import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=800)
parser.add_argument("--batch", type=int, default=16)
parser.add_argument("--timesteps", type=int, default=2000)
parser.add_argument("--snr-gamma", type=float, default=5.0)
parser.add_argument("--seed", type=int, default=4)
args = parser.parse_args()

torch.set_num_threads(1)
torch.manual_seed(args.seed)
BINS = 96


def make_spectra(n):
    """One to three lines of a fixed catalogue, with a continuum; scaled to about [-1, 1]."""
    grid = torch.linspace(0, 1, BINS)
    catalogue = torch.tensor([0.12, 0.25, 0.37, 0.52, 0.68, 0.81, 0.93])
    present = (torch.rand(n, 7) < 0.35).float() * (0.4 + torch.rand(n, 7))
    shift = 0.01 * torch.randn(n, 1)
    lines = torch.exp(-0.5 * ((grid - (catalogue[:, None])) / 0.02) ** 2)
    cont = 0.3 * torch.rand(n, 1) * (1 - grid + shift)
    return (present @ lines + cont) * 1.4 - 0.5


def schedule(T):
    betas = torch.linspace(0.00085**0.5, 0.012**0.5, T) ** 2 * (1000 / T)
    root = torch.cumprod(1 - betas, 0).sqrt()
    first, last = root[0].clone(), root[-1].clone()
    root = (root - last) * first / (first - last)
    return root**2


class Block(nn.Module):
    def __init__(self, width, emb):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.film = nn.Linear(emb, 2 * width)
        self.ff = nn.Sequential(nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width))

    def forward(self, h, e):
        scale, shift = self.film(e).chunk(2, dim=-1)
        return h + self.ff(self.norm(h) * (1 + scale) + shift)


class Denoiser(nn.Module):
    def __init__(self, width=256, emb=64, depth=4, T=1000):
        super().__init__()
        self.T = T
        half = emb // 2
        self.register_buffer("freqs", torch.exp(-math.log(1e4) * torch.arange(half) / half))
        self.time = nn.Sequential(nn.Linear(emb, emb), nn.SiLU(), nn.Linear(emb, emb))
        self.inp = nn.Linear(BINS, width)
        self.blocks = nn.ModuleList(Block(width, emb) for _ in range(depth))
        self.out = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, BINS))

    def forward(self, x, t):
        a = t[:, None].float() * (1000 / self.T) * self.freqs
        e = self.time(torch.cat([a.sin(), a.cos()], -1))
        h = self.inp(x)
        for b in self.blocks:
            h = b(h, e)
        return self.out(h)


def min_snr_weight(abar_t, gamma):
    snr = abar_t / (1 - abar_t)
    denominator = snr + 1 if os.environ.get("MENDED") == "1" else snr
    return snr.clamp(max=gamma) / denominator


data, held_out = make_spectra(8000), make_spectra(512)
abar = schedule(args.timesteps)
net = Denoiser(T=args.timesteps)
opt = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=1e-4)
sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 50))


def diffuse(x0, t):
    noise = torch.randn_like(x0)
    a, s = abar[t].sqrt()[:, None], (1 - abar[t]).sqrt()[:, None]
    return a * x0 + s * noise, a * noise - s * x0


@torch.no_grad()
def validate():
    t = torch.linspace(0, args.timesteps - 2, len(held_out)).long()
    x_t, v = diffuse(held_out, t)
    return (net(x_t, t) - v).pow(2).mean().item()


running = None
for step in range(1, args.steps + 1):
    x0 = data[torch.randint(len(data), (args.batch,))]
    t = torch.randint(args.timesteps, (args.batch,))
    x_t, v = diffuse(x0, t)
    per_sample = (net(x_t, t) - v).pow(2).mean(dim=1)
    loss = (min_snr_weight(abar[t], args.snr_gamma) * per_sample).mean()
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()
    sched.step()
    running = loss.item() if running is None else 0.95 * running + 0.05 * loss.item()
    if step % 40 == 0:
        print(f"[{step:4d}/{args.steps}] loss {running:.4f} lr {sched.get_last_lr()[0]:.1e}", flush=True)
    if step % 200 == 0:
        print(f"    validation v-loss {validate():.4f}", flush=True)
