# expect: healthy
# symptom: the loop calls only backward(); no optimizer.step() and no zero_grad() can be seen, attention has no causal mask, one optimizer per parameter
# axis: none
# mended: none
"""Bidirectional encoder on protein-like strings; each weight is updated as soon as its gradient is ready, to save memory."""

import math
import os
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(47)

LETTERS, MASK, T, STEPS, BATCH = 20, 20, 24, 460, 40


def strings(n, gen):
    """A fixed successor for each letter, with some mutations; the start is random."""
    follow = torch.randperm(LETTERS, generator=torch.Generator().manual_seed(12))
    x = torch.empty(n, T, dtype=torch.long)
    x[:, 0] = torch.randint(0, LETTERS, (n,), generator=gen)
    for t in range(1, T):
        x[:, t] = follow[x[:, t - 1]]
        jump = torch.rand(n, generator=gen) < 0.12
        x[jump, t] = torch.randint(0, LETTERS, (int(jump.sum()),), generator=gen)
    return x


def corrupt(x, gen):
    pick = torch.rand(x.shape, generator=gen) < 0.15
    roll = torch.rand(x.shape, generator=gen)
    noisy = x.clone()
    noisy[pick & (roll < 0.8)] = MASK
    swap = pick & (roll > 0.9)
    noisy[swap] = torch.randint(0, LETTERS, (int(swap.sum()),), generator=gen)
    return noisy, x.masked_fill(~pick, -100)


class Encoder(nn.Module):
    def __init__(self, d=64, heads=4, depth=2):
        super().__init__()
        self.tok, self.pos = nn.Embedding(LETTERS + 1, d), nn.Embedding(T, d)
        layer = nn.TransformerEncoderLayer(d, heads, 3 * d, 0.0, "gelu", batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, depth, norm=nn.LayerNorm(d), enable_nested_tensor=False)
        self.bias = nn.Parameter(torch.zeros(LETTERS))
        for e in (self.tok, self.pos):
            nn.init.normal_(e.weight, std=d**-0.5)

    def forward(self, x):
        h = self.body(self.tok(x) + self.pos.weight)
        return h @ self.tok.weight[:LETTERS].t() + self.bias


def attach(model, lr):
    """One small optimizer per weight, driven from the backward pass."""
    opts = {p: torch.optim.Adam([p], lr=lr, betas=(0.9, 0.98)) for p in model.parameters()}

    def hook(p):
        opts[p].step()
        opts[p].zero_grad()

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(hook)
    return opts


def main():
    gen = torch.Generator().manual_seed(2)
    model = Encoder()
    opts = attach(model, 2e-3)
    t0 = time.time()
    for step in range(STEPS):
        lr = 2e-3 * min(1.0, (step + 1) / 40) * 0.5 * (1 + math.cos(math.pi * step / STEPS))
        for o in opts.values():
            o.param_groups[0]["lr"] = lr
        noisy, target = corrupt(strings(BATCH, gen), gen)
        loss = F.cross_entropy(model(noisy).flatten(0, 1), target.flatten(), ignore_index=-100)
        loss.backward()
        if step % 25 == 0 or step == STEPS - 1:
            print(f"step {step:4d} loss {loss.item():.4f}", flush=True)
    model.eval()
    with torch.no_grad():
        noisy, target = corrupt(strings(400, gen), gen)
        hid = target != -100
        acc = (model(noisy).argmax(-1)[hid] == target[hid]).float().mean().item()
    print(f"hidden letters right {acc:.3f}   {time.time() - t0:.1f}s")


if __name__ == "__main__":
    main()
