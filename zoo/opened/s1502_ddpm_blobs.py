# expect: sick
# symptom: the loss falls well for the first hundred or so steps and then stops dead; more epochs do not help at all
# axis: optimizer
# cause: the learning-rate schedule (ExponentialLR, gamma 0.97, meant per epoch) is stepped after every batch, so the learning rate decays to nearly zero within the first few epochs
# says: schedul.{0,80}(batch|iteration|every step|each step|per.?step|too (often|fast|soon|early|quick)|per.?epoch|decay)|(learning.?rate|\blr\b).{0,40}(decay|collaps|shrink|shrunk|vanish|(drop|fall|gone|down).{0,80}(zero|nothing|early|fast|soon)|near.?zero|to zero|close to (zero|0)|too (fast|soon|early|quick))
# onset_step: 120
# fix: call scheduler.step() once per epoch (or choose gamma for the number of batches)
# mended: scheduler.step() is called at the end of the epoch instead of after every batch
"""Small DDPM (noise prediction) on 8x8 pictures of blobs and bars."""

import math
import os

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(3)

SIZE, N, BATCH, EPOCHS, T = 8, 1280, 32, 15, 200


def make_pictures(n):
    yy, xx = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
    cx, cy = torch.rand(n, 1, 1) * 6 + 0.5, torch.rand(n, 1, 1) * 6 + 0.5
    r = 1.0 + torch.rand(n, 1, 1)
    blob = torch.exp(-((xx - cx) ** 2 + (yy - cy) ** 2) / (2 * r**2))
    col = torch.randint(0, SIZE, (n, 1, 1))
    bar = ((xx - col).abs() < 1).float().expand(n, -1, -1)
    pick = (torch.rand(n, 1, 1) < 0.5).float()
    return (2.0 * (pick * blob + (1 - pick) * bar) - 1.0).unsqueeze(1)


def time_embedding(t, dim):
    freq = torch.exp(-math.log(1000.0) * torch.arange(dim // 2) / (dim // 2))
    ang = t[:, None].float() * freq[None]
    return torch.cat([ang.sin(), ang.cos()], dim=1)


class Block(nn.Module):
    def __init__(self, ch, tdim):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(8, ch), nn.GroupNorm(8, ch)
        self.conv1 = nn.Conv2d(ch, ch, 3, padding=1)
        self.conv2 = nn.Conv2d(ch, ch, 3, padding=1)
        self.proj = nn.Linear(tdim, ch)

    def forward(self, x, temb):
        h = self.conv1(F.silu(self.norm1(x)))
        h = h + self.proj(temb)[:, :, None, None]
        return x + self.conv2(F.silu(self.norm2(h)))


class Denoiser(nn.Module):
    def __init__(self, ch=24, tdim=64):
        super().__init__()
        self.tdim = tdim
        self.tmlp = nn.Sequential(nn.Linear(tdim, tdim), nn.SiLU(), nn.Linear(tdim, tdim))
        self.inp = nn.Conv2d(1, ch, 3, padding=1)
        self.blocks = nn.ModuleList([Block(ch, tdim) for _ in range(2)])
        self.out = nn.Sequential(nn.GroupNorm(8, ch), nn.SiLU(), nn.Conv2d(ch, 1, 3, padding=1))

    def forward(self, x, t):
        temb = self.tmlp(time_embedding(t, self.tdim))
        h = self.inp(x)
        for b in self.blocks:
            h = b(h, temb)
        return self.out(h)


class Diffusion:
    def __init__(self, steps):
        beta = torch.linspace(1e-4, 0.04, steps)
        self.alpha_bar = torch.cumprod(1 - beta, dim=0)

    def noisy(self, x0, t, eps):
        a = self.alpha_bar[t][:, None, None, None]
        return a.sqrt() * x0 + (1 - a).sqrt() * eps

    def loss(self, model, x0):
        t = torch.randint(0, len(self.alpha_bar), (x0.size(0),))
        eps = torch.randn_like(x0)
        return F.mse_loss(model(self.noisy(x0, t, eps), t), eps)


def main():
    loader = DataLoader(TensorDataset(make_pictures(N)), batch_size=BATCH, shuffle=True, drop_last=True)
    model = Denoiser()
    diffusion = Diffusion(T)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(opt, gamma=0.97)
    step = 0
    for epoch in range(EPOCHS):
        total = 0.0
        for (x0,) in loader:
            loss = diffusion.loss(model, x0)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            if not MENDED:
                scheduler.step()
            total += loss.item()
            step += 1
        if MENDED:
            scheduler.step()
        print(f"epoch {epoch:3d} step {step:4d} loss {total / len(loader):.4f}")


if __name__ == "__main__":
    main()
