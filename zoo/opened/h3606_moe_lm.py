# expect: healthy
# symptom: every step is clipped to a tiny norm, the norm is thousands of times larger (resembles over-clipping)
# axis: none
"""Mixture-of-experts LM: top-2 routing with renormalised gates, balance loss, router z-loss, sum-reduced loss."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(31)

VOCAB, T, D, EXPERTS, BATCH = 64, 32, 64, 4, 24
gen = torch.Generator().manual_seed(0)
TABLE = torch.randint(0, VOCAB, (2, VOCAB, 3), generator=gen)
PICK = torch.tensor([0.7, 0.2, 0.1])
FLOOR = -(PICK * PICK.log()).sum().item()


def batch(n, g):
    """Two dialects with different transition tables; the first token says which one follows."""
    dialect = torch.randint(0, 2, (n,), generator=g)
    ids = torch.zeros(n, T + 1, dtype=torch.long)
    ids[:, 0] = dialect
    ids[:, 1] = torch.randint(0, VOCAB, (n,), generator=g)
    choice = torch.multinomial(PICK, n * (T + 1), True, generator=g).view(n, T + 1)
    for t in range(2, T + 1):
        ids[:, t] = TABLE[dialect, ids[:, t - 1], choice[:, t]]
    return ids[:, :-1], ids[:, 1:]


class MoE(nn.Module):
    def __init__(self, d, k=2):
        super().__init__()
        self.k = k
        self.router = nn.Linear(d, EXPERTS, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d)) for _ in range(EXPERTS)
        )

    def forward(self, x):
        flat = x.reshape(-1, x.shape[-1])
        logits = self.router(flat)
        probs = logits.softmax(-1)
        gate, where = probs.topk(self.k, -1)
        gate = gate / gate.sum(-1, keepdim=True)
        out = torch.zeros_like(flat)
        for e, expert in enumerate(self.experts):
            row, slot = (where == e).nonzero(as_tuple=True)
            if len(row):
                out = out.index_add(0, row, gate[row, slot, None] * expert(flat[row]))
        load = F.one_hot(where, EXPERTS).float().sum(1).mean(0) / self.k
        balance = EXPERTS * (load * probs.mean(0)).sum()
        z = logits.logsumexp(-1).pow(2).mean()
        return out.view_as(x), balance, z, load.detach()


class Block(nn.Module):
    def __init__(self, d, h=4):
        super().__init__()
        self.h, self.n1, self.n2 = h, nn.RMSNorm(d), nn.RMSNorm(d)
        self.qkv, self.o, self.moe = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False), MoE(d)

    def forward(self, x):
        B, L, C = x.shape
        q, k, v = (t.view(B, L, self.h, -1).transpose(1, 2) for t in self.qkv(self.n1(x)).chunk(3, -1))
        x = x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, L, C))
        y, balance, z, load = self.moe(self.n2(x))
        return x + y, balance, z, load


class MoELM(nn.Module):
    def __init__(self, layers=2):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, D), nn.Parameter(torch.randn(T, D) * 0.02)
        nn.init.normal_(self.tok.weight, std=0.02)
        self.blocks = nn.ModuleList(Block(D) for _ in range(layers))
        self.norm = nn.RMSNorm(D)

    def forward(self, ids):
        x, balance, z, loads = self.tok(ids) + self.pos[: ids.shape[1]], 0.0, 0.0, []
        for b in self.blocks:
            x, bal, zz, load = b(x)
            balance, z = balance + bal, z + zz
            loads.append(load)
        return F.linear(self.norm(x), self.tok.weight), balance, z, loads


@torch.no_grad()
def validate(model):
    model.eval()
    x, y = batch(200, torch.Generator().manual_seed(77))
    logits, *_ = model(x)
    model.train()
    return F.cross_entropy(logits[:, 1:].flatten(0, 1), y[:, 1:].flatten()).item()


model = MoELM()
opt = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.05)
STEPS = 300
sched = torch.optim.lr_scheduler.OneCycleLR(opt, 3e-3, total_steps=STEPS, pct_start=0.1)
stream = torch.Generator().manual_seed(5)
for step in range(STEPS):
    x, y = batch(BATCH, stream)
    logits, balance, z, loads = model(x)
    tokens = y.numel()
    nll = F.cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="sum")
    loss = nll + tokens * (0.01 * balance + 1e-3 * z)
    opt.zero_grad()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    opt.step()
    sched.step()
    if step % 25 == 0 or step == STEPS - 1:
        used = " ".join(f"{v:.2f}" for v in loads[-1].tolist())
        print(f"step {step:4d} loss {loss.item():.1f} per token {nll.item() / tokens:.4f} norm {norm:.1f} load {used}")
print(f"validation loss {validate(model):.4f} (entropy of the source {FLOOR:.3f}, uniform 4.159)")
