# expect: sick
# symptom: loss falls at first, then stalls well above where it should go; learning rate and gradient norm look fine; many tensors hardly change
# axis: precision
# cause: weights are kept and updated purely in bfloat16 with no fp32 master copy, so AdamW's small updates round to zero
# says: (bf16|bfloat16|half|low.?precision|16.?bit).{0,140}(update|weight|param|master|round|step|mantissa)|(fp32|float32|full.?precision).{0,40}(master|copy|weight|param)|(update|step)s?.{0,60}(round|lost|vanish|swallow|too small|underflow|below).{0,80}(zero|bf16|bfloat16|precision|away|mantissa|ulp)|master (weight|cop|param)|stochastic rounding
# onset_step: 100
# fix: keep fp32 parameters and use bf16 autocast (or a master copy / stochastic rounding)
# mended: parameters stay fp32 and the forward runs under bf16 autocast
import math
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(17)

VOCAB, CTX, D, HEADS, LAYERS = 64, 32, 64, 4, 2
BATCH, STEPS, LR = 12, 300, 2e-4


class Corpus:
    """A made-up language: a second-order chain with a few likely followers for each pair of words."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.follow = rng.integers(0, VOCAB, size=(VOCAB, 4, 3))
        self.gen = np.random.default_rng(seed + 1)

    def batch(self, n):
        ids = np.zeros((n, CTX + 1), dtype=np.int64)
        ids[:, 0] = self.gen.integers(0, VOCAB, size=n)
        ids[:, 1] = self.gen.integers(0, VOCAB, size=n)
        for t in range(2, CTX + 1):
            pick = self.gen.choice(3, size=n, p=[0.85, 0.1, 0.05])
            ids[:, t] = self.follow[ids[:, t - 1], ids[:, t - 2] % 4, pick]
        ids = torch.from_numpy(ids)
        return ids[:, :-1], ids[:, 1:]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.qkv, self.proj = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.mlp = nn.Sequential(nn.Linear(D, 4 * D), nn.GELU(), nn.Linear(4 * D, D))

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (z.view(b, t, HEADS, -1).transpose(1, 2) for z in self.qkv(self.n1(x)).chunk(3, -1))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, D))
        return x + self.mlp(self.n2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, D), nn.Embedding(CTX, D)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(D)
        self.head = nn.Linear(D, VOCAB, bias=False)

    def forward(self, ids):
        x = self.tok(ids) + self.pos(torch.arange(ids.size(1)))
        for b in self.blocks:
            x = b(x)
        return self.head(self.norm(x))


def lr_at(step):
    if step < 30:
        return LR * (step + 1) / 30
    t = (step - 30) / (STEPS - 30)
    return LR * (0.1 + 0.45 * (1 + math.cos(math.pi * t)))


def main():
    corpus = Corpus(2)
    val = [corpus.batch(BATCH) for _ in range(4)]
    model = GPT()
    model = model.to(torch.float32 if MENDED else torch.bfloat16)
    decay = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() <= 1]
    opt = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.05}, {"params": rest, "weight_decay": 0.0}], lr=LR, betas=(0.9, 0.95)
    )

    def loss_on(x, y):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=MENDED):
            logits = model(x)
        return F.cross_entropy(logits.float().reshape(-1, VOCAB), y.reshape(-1))

    t0 = time.time()
    for step in range(STEPS):
        for g in opt.param_groups:
            g["lr"] = lr_at(step)
        x, y = corpus.batch(BATCH)
        loss = loss_on(x, y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        gnorm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if step % 20 == 0:
            print(
                f"step {step} loss {loss.item():.4f} grad {gnorm.item():.3f} lr {lr_at(step):.6f} t {time.time() - t0:.1f}"
            )
        if step % 100 == 99:
            with torch.no_grad():
                v = sum(loss_on(a, b).item() for a, b in val) / len(val)
            print(f"val loss {v:.4f}")


if __name__ == "__main__":
    main()
