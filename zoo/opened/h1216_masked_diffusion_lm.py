# expect: healthy
# symptom: a language model without causal mask and without label shift; the loss is a sum weighted by 1/t, noisy from batch to batch, stays near 1.05 from step 120 on (the entropy of the random words), and the model never sees the time t
# axis: none
# mended: none
import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(16)

LETTERS, SEP, MASK = 10, 10, 11
VOCAB, HALF = 12, 6
LENGTH = 2 * HALF + 1


def text(n, r):
    """A random word, a separator and the word reversed."""
    w = r.integers(0, LETTERS, (n, HALF))
    return torch.from_numpy(np.concatenate([w, np.full((n, 1), SEP), w[:, ::-1]], 1))


class Block(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.n1, self.n2, self.h = nn.RMSNorm(d), nn.RMSNorm(d), h
        self.qkv, self.o = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
        self.gate, self.up, self.down = nn.Linear(d, 2 * d), nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.h, -1).permute(2, 0, 3, 1, 4)
        x = x + self.o(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d))
        y = self.n2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Denoiser(nn.Module):
    def __init__(self, d=64, h=4, layers=2):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, d)
        nn.init.normal_(self.emb.weight, std=0.5)
        self.pos = nn.Parameter(0.5 * torch.randn(1, LENGTH, d))
        self.blocks = nn.ModuleList(Block(d, h) for _ in range(layers))
        self.norm = nn.RMSNorm(d)
        self.head = nn.Linear(d, VOCAB)

    def forward(self, ids):
        x = self.emb(ids) + self.pos
        for b in self.blocks:
            x = b(x)
        logits = self.head(self.norm(x))
        logits[..., MASK] = -1e9
        return logits


def diffusion_loss(model, x, gen):
    n, l = x.shape
    # one t per row, spread evenly over the batch
    u = (torch.rand(1, generator=gen) + torch.arange(n) / n) % 1
    t = (1e-3 + (1 - 1e-3) * u)[:, None]
    masked = torch.rand(n, l, generator=gen) < t
    noisy = torch.where(masked, MASK, x)
    logits = model(noisy)
    ce = F.cross_entropy(logits[masked], x[masked], reduction="none")
    return (ce / t.expand(n, l)[masked]).sum() / (n * l)


@torch.no_grad()
def solve(model, x):
    """Give the second half, fill in the first one position at a time, the surest first."""
    model.eval()
    ids = x.clone()
    ids[:, :HALF] = MASK
    for _ in range(HALF):
        p, tok = model(ids).softmax(-1).max(-1)
        p = p.masked_fill(ids != MASK, -1)
        j = p.argmax(1, keepdim=True)
        ids.scatter_(1, j, tok.gather(1, j))
    model.train()
    ok = ids[:, :HALF] == x[:, :HALF]
    return ok.float().mean().item(), ok.all(1).float().mean().item()


def main():
    r, gen = np.random.default_rng(0), torch.Generator().manual_seed(0)
    test = text(400, np.random.default_rng(1))
    model = Denoiser()
    steps, lr = 450, 3e-3
    opt = torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.98), weight_decay=0.01)
    for step in range(steps):
        for g in opt.param_groups:
            g["lr"] = lr * min(1, (step + 1) / 40) * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * step / steps)))
        loss = diffusion_loss(model, text(64, r), gen)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        if (step + 1) % 150 == 0:
            d, e = solve(model, test)
            print(f"step {step} letters right {d:.3f} words right {e:.3f}", flush=True)


if __name__ == "__main__":
    main()
