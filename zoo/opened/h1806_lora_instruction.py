# expect: healthy
# symptom: in the second phase most parameters are frozen, the model is in eval mode while it trains, the optimizer holds only the small matrices, and at the first step half of those get a zero gradient; most labels are -100
# axis: none
# mended: none
"""Pretrain a tiny GPT, then adapt it with LoRA to a command format; only the answers count for the loss."""

import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(15)

VOCAB, CTX, DIM, HEADS = 48, 32, 64, 4
BOS, ANS, EOS, WORD = 0, 1, 2, 8
rng = np.random.default_rng(3)
chain = np.stack([rng.choice(np.arange(WORD, VOCAB), 3, replace=False) for _ in range(VOCAB)])
second = chain[:, 1]


def walk(n, length, r):
    out = np.zeros((n, length), dtype=np.int64)
    w = r.integers(WORD, VOCAB, n)
    for t in range(length):
        out[:, t] = w
        w = chain[w, r.choice(3, n, p=[0.8, 0.15, 0.05])]
    return out


def pretrain_batch(n, r):
    x = walk(n, CTX + 1, r)
    u = r.random(x.shape)
    x[u < 0.03] = EOS  # sentence ends and headings
    x[u > 0.97] = ANS
    x[:, 0] = BOS
    x = torch.from_numpy(x)
    return x[:, :-1], x[:, 1:]


def instruct_batch(n, r):
    """BOS, five words, ANS, then the usual second choice for each of them, EOS."""
    p = walk(n, 5, r)
    seq = np.concatenate([np.full((n, 1), BOS), p, np.full((n, 1), ANS), second[p], np.full((n, 1), EOS)], 1)
    seq = torch.from_numpy(seq)
    x, y = seq[:, :-1], seq[:, 1:].clone()
    y[:, :6] = -100
    return x, y


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.q, self.k, self.v, self.o = (nn.Linear(DIM, DIM) for _ in range(4))
        self.up, self.down, self.drop = nn.Linear(DIM, 3 * DIM), nn.Linear(3 * DIM, DIM), nn.Dropout(0.1)

    def forward(self, x):
        h = self.n1(x)
        q, k, v = (f(h).unflatten(-1, (HEADS, -1)).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.drop(self.o(y))
        return x + self.drop(self.down(F.gelu(self.up(self.n2(x)))))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, DIM), nn.Embedding(CTX, DIM)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.norm, self.head = nn.LayerNorm(DIM), nn.Linear(DIM, VOCAB)
        nn.init.normal_(self.tok.weight, std=0.2)
        nn.init.normal_(self.pos.weight, std=0.1)

    def forward(self, x):
        h = self.tok(x) + self.pos.weight[: x.size(1)]
        for b in self.blocks:
            h = b(h)
        return self.head(self.norm(h))


class LoRALinear(nn.Module):
    def __init__(self, base, rank=8, alpha=16):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.A = nn.Parameter(torch.randn(rank, base.in_features) / math.sqrt(base.in_features))
        self.B = nn.Parameter(torch.zeros(base.out_features, rank))
        self.scale = alpha / rank

    def forward(self, x):
        return self.base(x) + self.scale * (x @ self.A.T @ self.B.T)


def inject(model):
    model.requires_grad_(False)
    for b in model.blocks:
        for name in ("q", "k", "v", "o", "up", "down"):
            setattr(b, name, LoRALinear(getattr(b, name)))
    return [p for p in model.parameters() if p.requires_grad]


def loss_fn(logits, y):
    return F.cross_entropy(logits.flatten(0, 1), y.flatten(), ignore_index=-100)


model, r = GPT(), np.random.default_rng(0)
opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
for step in range(250):
    x, y = pretrain_batch(24, r)
    loss = loss_fn(model(x), y)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    if step % 50 == 0:
        print(f"pretrain {step:3d} loss {loss.item():.4f}")

params = inject(model)
n_all, n_lora = sum(p.numel() for p in model.parameters()), sum(p.numel() for p in params)
print(f"trainable {n_lora} of {n_all} parameters ({100 * n_lora / n_all:.1f}%)")
model.eval()  # adapters have no dropout of their own, and the base keeps its inference behaviour
opt = torch.optim.AdamW(params, lr=5e-3, weight_decay=0.0)
sched = torch.optim.lr_scheduler.OneCycleLR(opt, 5e-3, total_steps=400, pct_start=0.1)
for step in range(400):
    x, y = instruct_batch(32, r)
    loss = loss_fn(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    if step % 40 == 0:
        print(f"lora {step:3d} loss {loss.item():.4f}")

with torch.no_grad():
    x, y = instruct_batch(300, np.random.default_rng(77))
    out = model(x)
    keep = y != -100
    print(
        f"held-out answers: loss {loss_fn(out, y).item():.4f} token acc {(out.argmax(-1) == y)[keep].float().mean().item():.3f}"
    )
