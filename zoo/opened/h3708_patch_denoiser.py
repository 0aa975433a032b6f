# expect: healthy
# symptom: resembles a stalled and noisy run: zero-initialised output, loss starts at 1, bfloat16 autocast
# axis: precision
"""Small diffusion transformer (adaLN-zero) on 8x8 blob images, bfloat16 autocast with float32 weights."""

import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(62)

SIZE, PATCH, DIM, DEPTH, T = 8, 2, 64, 2, 200
STEPS, BATCH, LR, EMA = 400, 32, 2e-3, 0.98
betas = torch.linspace(1e-4, 0.04, T)
alpha_bar = torch.cumprod(1 - betas, dim=0)


def blobs(n, gen):
    c = 1.5 + 4 * torch.rand(n, 2, generator=gen)
    w = 1.0 + 0.8 * torch.rand(n, 1, 1, generator=gen)
    ax = torch.arange(SIZE).float()
    d = (ax[None, :, None] - c[:, 0, None, None]) ** 2 + (ax[None, None, :] - c[:, 1, None, None]) ** 2
    return 2 * torch.exp(-d / (2 * w**2)).unsqueeze(1) - 1


def patchify(x):
    return F.unfold(x, PATCH, stride=PATCH).transpose(1, 2)


def unpatchify(tokens):
    return F.fold(tokens.transpose(1, 2), (SIZE, SIZE), PATCH, stride=PATCH)


def time_features(t):
    freq = torch.exp(-math.log(10000) * torch.arange(DIM // 2) / (DIM // 2))
    arg = t.float()[:, None] * freq[None]
    return torch.cat([arg.cos(), arg.sin()], dim=-1)


class DiTBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1 = nn.LayerNorm(DIM, elementwise_affine=False)
        self.n2 = nn.LayerNorm(DIM, elementwise_affine=False)
        self.qkv, self.proj = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.mlp = nn.Sequential(nn.Linear(DIM, 2 * DIM), nn.GELU(), nn.Linear(2 * DIM, DIM))
        self.ada = nn.Linear(DIM, 6 * DIM)
        nn.init.zeros_(self.ada.weight)
        nn.init.zeros_(self.ada.bias)

    def forward(self, x, cond):
        s1, b1, g1, s2, b2, g2 = self.ada(cond).unsqueeze(1).chunk(6, dim=-1)
        b, t, _ = x.shape
        h = self.n1(x) * (1 + s1) + b1
        q, k, v = self.qkv(h).view(b, t, 3, 4, DIM // 4).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, DIM)
        x = x + g1 * self.proj(a)
        return x + g2 * self.mlp(self.n2(x) * (1 + s2) + b2)


class DiT(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(PATCH * PATCH, DIM)
        self.pos = nn.Parameter(torch.randn(1, (SIZE // PATCH) ** 2, DIM) * 0.1)
        self.time = nn.Sequential(nn.Linear(DIM, DIM), nn.SiLU(), nn.Linear(DIM, DIM), nn.SiLU())
        self.blocks = nn.ModuleList([DiTBlock() for _ in range(DEPTH)])
        self.norm, self.out = nn.LayerNorm(DIM), nn.Linear(DIM, PATCH * PATCH)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, x, t):
        cond = self.time(time_features(t))
        h = self.inp(patchify(x)) + self.pos
        for block in self.blocks:
            h = block(h, cond)
        return unpatchify(self.out(self.norm(h)).float())


def diffusion_loss(model, x0, gen):
    t = torch.randint(0, T, (len(x0),), generator=gen)
    noise = torch.randn(x0.shape, generator=gen)
    ab = alpha_bar[t].view(-1, 1, 1, 1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        pred = model(ab.sqrt() * x0 + (1 - ab).sqrt() * noise, t)
    return F.mse_loss(pred, noise)


def main():
    gen = torch.Generator().manual_seed(9)
    model = DiT()
    ema = copy.deepcopy(model).requires_grad_(False)
    opt = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.0)
    for step in range(STEPS):
        for g in opt.param_groups:
            g["lr"] = LR * min(1.0, (step + 1) / 40)
        loss = diffusion_loss(model, blobs(BATCH, gen), gen)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        with torch.no_grad():
            for pe, pm in zip(ema.parameters(), model.parameters()):
                pe.lerp_(pm, 1 - EMA)
        if step % 20 == 0:
            print(f"step {step:4d} eps-mse {loss.item():.4f}")
    with torch.no_grad():
        val = diffusion_loss(ema, blobs(500, torch.Generator().manual_seed(1)), torch.Generator().manual_seed(2))
    print(f"final eps-mse {loss.item():.4f} | ema val eps-mse {val.item():.4f}")


if __name__ == "__main__":
    main()
