# expect: healthy
# symptom: modules are called gate, up and down and the gate's output multiplies the up projection; that is a plain dense SwiGLU feed-forward, no mixture of experts and no router
# axis: none
# mended: none
"""LLaMA-like language model (RMSNorm, rotary positions, SwiGLU) on arithmetic strings."""

import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
CHARS = "0123456789+=;"
STOI = {c: i for i, c in enumerate(CHARS)}
DIM, HEADS, LAYERS, CTX = 96, 4, 2, 48


def text(n_sums, seed):
    rng = np.random.default_rng(seed)
    s = "".join(f"{a}+{b}={a + b};" for a, b in rng.integers(0, 30, (n_sums, 2)))
    return torch.tensor([STOI[c] for c in s])


class RMSNorm(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


def rotary(t, d):
    inv = 1.0 / 10000 ** (torch.arange(0, d, 2).float() / d)
    ang = torch.arange(t).float()[:, None] * inv
    return torch.cat([ang, ang], -1).cos(), torch.cat([ang, ang], -1).sin()


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


class SelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(DIM, DIM, bias=False) for _ in range(4))

    def forward(self, x, cos, sin):
        b, t, _ = x.shape
        q, k, v = (m(x).view(b, t, HEADS, -1).transpose(1, 2) for m in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True)
        return self.o(y.transpose(1, 2).reshape(b, t, -1))


class FeedForward(nn.Module):
    def __init__(self, hidden=256):
        super().__init__()
        self.gate = nn.Linear(DIM, hidden, bias=False)
        self.up = nn.Linear(DIM, hidden, bias=False)
        self.down = nn.Linear(hidden, DIM, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class DecoderLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn, self.mlp = SelfAttention(), FeedForward()
        self.n1, self.n2 = RMSNorm(DIM), RMSNorm(DIM)

    def forward(self, x, cos, sin):
        x = x + self.attn(self.n1(x), cos, sin)
        return x + self.mlp(self.n2(x))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(len(CHARS), DIM)
        self.layers = nn.ModuleList(DecoderLayer() for _ in range(LAYERS))
        self.norm, self.head = RMSNorm(DIM), nn.Linear(DIM, len(CHARS), bias=False)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.04)

    def forward(self, ids):
        cos, sin = rotary(ids.size(1), DIM // HEADS)
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.head(self.norm(x))


torch.manual_seed(20)
data, model, steps = text(20_000, 5), Decoder(), 300
opt = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.1)
for step in range(steps):
    lr = 3e-3 * min((step + 1) / 20, 0.5 * (1 + math.cos(math.pi * step / steps)) + 0.02)
    opt.param_groups[0]["lr"] = lr
    at = torch.randint(0, len(data) - CTX - 1, (24,))
    seq = torch.stack([data[i : i + CTX + 1] for i in at])
    loss = F.cross_entropy(model(seq[:, :-1]).flatten(0, 1), seq[:, 1:].flatten())
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    if step % 25 == 0 or step == steps - 1:
        print(f"step {step:3d} loss {loss.item():.4f}")
