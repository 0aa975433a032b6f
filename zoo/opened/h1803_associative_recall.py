# expect: healthy
# symptom: the loss hangs on a plateau near ln(6) (it guesses among the six values in the context) for more than half of the run and then drops almost to zero within a few dozen steps
# axis: none
# mended: none
"""In-context associative recall with a two-layer attention model (keys and values, then a query key)."""

import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(1)

KEYS, VALUES, PAIRS = 16, 16, 6
VOCAB, LENGTH = KEYS + VALUES, 2 * PAIRS + 1


def episodes(n, gen):
    keys = torch.rand(n, KEYS, generator=gen).argsort(1)[:, :PAIRS]
    vals = torch.randint(0, VALUES, (n, PAIRS), generator=gen)
    ask = torch.randint(0, PAIRS, (n,), generator=gen)
    rows = torch.arange(n)
    seq = torch.stack([keys, vals + KEYS], 2).flatten(1)
    return torch.cat([seq, keys[rows, ask][:, None]], 1), vals[rows, ask]


class Layer(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.q, self.k, self.v, self.o = (nn.Linear(d, d, bias=False) for _ in range(4))
        self.mlp = nn.Sequential(nn.Linear(d, 2 * d), nn.ReLU(), nn.Linear(2 * d, d))

    def forward(self, x):
        h = self.norm1(x)
        q, k, v = (f(h).unflatten(-1, (self.heads, -1)).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class Recall(nn.Module):
    def __init__(self, d=64, heads=2, depth=2):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, d)
        self.pos = nn.Embedding(LENGTH, d)
        self.layers = nn.Sequential(*[Layer(d, heads) for _ in range(depth)])
        self.norm = nn.LayerNorm(d)
        self.out = nn.Linear(d, VALUES)
        for p in (self.tok.weight, self.pos.weight):
            nn.init.normal_(p, std=0.1)

    def forward(self, ids):
        x = self.layers(self.tok(ids) + self.pos.weight)
        return self.out(self.norm(x[:, -1]))


gen = torch.Generator().manual_seed(10)
val = episodes(500, torch.Generator().manual_seed(11))
model = Recall()
opt = torch.optim.AdamW(model.parameters(), lr=1.5e-3, betas=(0.9, 0.98), weight_decay=0.01)
print(f"chance level: loss {math.log(VALUES):.3f} acc {1 / VALUES:.3f}")
STEPS, log = 750, []
for step in range(STEPS):
    for g in opt.param_groups:
        g["lr"] = 1.5e-3 * min(1.0, (step + 1) / 40) * min(1.0, (STEPS - step) / 150)
    x, y = episodes(96, gen)
    loss = F.cross_entropy(model(x), y)
    opt.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    log.append(loss.item())
    if step % 30 == 29:
        print(f"step {step + 1:3d} loss {np.mean(log[-30:]):.4f}")
    if step % 150 == 149:
        model.eval()
        with torch.no_grad():
            out = model(val[0])
        model.train()
        print(
            f"    val loss {F.cross_entropy(out, val[1]).item():.4f} "
            f"acc {(out.argmax(1) == val[1]).float().mean().item():.3f}"
        )
