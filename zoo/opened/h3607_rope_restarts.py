# expect: healthy
# symptom: the loss jumps up at intervals together with the learning rate (resembles a wrong cyclic schedule)
# axis: none
"""RoPE language model on arithmetic strings, bf16 autocast, block checkpointing, SGDR with snapshots per cycle."""

import copy

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

torch.set_num_threads(1)
torch.manual_seed(12)

CHARS = "0123456789+=;"
STOI = {c: i for i, c in enumerate(CHARS)}
SPAN, T = 7, 35  # "a+b=cd;" is 7 characters


def stream(n_rows, g):
    a = torch.randint(0, 10, (n_rows, T // SPAN + 1), generator=g)
    b = torch.randint(0, 10, a.shape, generator=g)
    rows = ["".join(f"{x}+{y}={x + y:02d};" for x, y in zip(p, q)) for p, q in zip(a.tolist(), b.tolist())]
    return torch.tensor([[STOI[c] for c in r[: T + 1]] for r in rows])


def rope(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


class Block(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h, self.n1, self.n2 = h, nn.RMSNorm(d), nn.RMSNorm(d)
        self.qkv, self.o = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
        self.gate, self.up, self.down = (
            nn.Linear(d, 2 * d, bias=False),
            nn.Linear(d, 2 * d, bias=False),
            nn.Linear(2 * d, d, bias=False),
        )

    def forward(self, x, cos, sin):
        B, L, D = x.shape
        q, k, v = (t.view(B, L, self.h, -1).transpose(1, 2) for t in self.qkv(self.n1(x)).chunk(3, -1))
        q, k = rope(q, cos, sin).to(v.dtype), rope(k, cos, sin).to(v.dtype)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(a.transpose(1, 2).reshape(B, L, D))
        h = self.n2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Llamita(nn.Module):
    def __init__(self, d=64, h=4, layers=2):
        super().__init__()
        self.tok = nn.Embedding(len(CHARS), d)
        self.blocks = nn.ModuleList(Block(d, h) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(d), nn.Linear(d, len(CHARS), bias=False)
        half = d // h // 2
        angle = torch.arange(T)[:, None] * 1000.0 ** (-torch.arange(half) / half)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.05)

    def forward(self, ids):
        x = self.tok(ids)
        n = ids.shape[1]
        for b in self.blocks:
            if self.training:
                x = checkpoint(b, x, self.cos[:n], self.sin[:n], use_reentrant=False)
            else:
                x = b(x, self.cos[:n], self.sin[:n])
        return self.head(self.norm(x))


@torch.no_grad()
def evaluate(model):
    """Loss on the answers and their exact match, on freshly drawn strings."""
    model.eval()
    rows = stream(200, torch.Generator().manual_seed(123))
    logits, y = model(rows[:, :-1]), rows[:, 1:]
    pos = torch.arange(T) % SPAN
    answer = (pos == 3) | (pos == 4)  # targets at offsets 4 and 5 of every sum
    loss = F.cross_entropy(logits[:, answer].flatten(0, 1), y[:, answer].flatten()).item()
    ok = (logits.argmax(-1) == y)[:, answer].view(len(y), -1, 2).all(-1).float().mean().item()
    model.train()
    return loss, ok


model = Llamita()
opt = torch.optim.AdamW(model.parameters(), lr=8e-3, betas=(0.9, 0.95), weight_decay=0.05)
CYCLE, CYCLES = 120, 3
sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, T_0=CYCLE, eta_min=1e-5)
g = torch.Generator().manual_seed(1)
best = None
for step in range(CYCLE * CYCLES):
    rows = stream(24, g)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(rows[:, :-1])
    logits = logits.float()
    ce = F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
    loss = ce + 1e-4 * logits.logsumexp(-1).pow(2).mean()
    opt.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    sched.step()
    if step % 15 == 0:
        print(f"step {step:4d} loss {ce.item():.4f} lr {sched.get_last_lr()[0]:.2e}")
    if (step + 1) % CYCLE == 0:
        val, ok = evaluate(model)
        print(f"cycle {(step + 1) // CYCLE} answer loss {val:.4f} exact match {ok:.3f}")
        if best is None or val < best[0]:
            best = (val, ok, copy.deepcopy(model.state_dict()))
print(f"snapshot kept: answer loss {best[0]:.4f} exact match {best[1]:.3f}")
