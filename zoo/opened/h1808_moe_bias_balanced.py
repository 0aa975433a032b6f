# expect: healthy
# symptom: the router bias is a buffer that no optimizer sees, is changed in place by a sign rule after each step and is used for the choice but not for the gates; there is no balance loss at all
# axis: none
# mended: none
"""Mixture-of-experts language model with loss-free balancing (bias on the routing scores, top-2)."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(19)

TOPICS, VOCAB, CTX, DIM, EXPERTS, TOP = 6, 60, 24, 48, 6, 2
rng = np.random.default_rng(2)
rules = np.stack([rng.permutation(VOCAB) for _ in range(TOPICS)])


def batch(n, r):
    topic = r.integers(0, TOPICS, n)
    x = np.zeros((n, CTX + 1), dtype=np.int64)
    x[:, 0] = r.integers(0, VOCAB, n)
    for t in range(1, CTX + 1):
        noise = r.random(n) < 0.08
        x[:, t] = np.where(noise, r.integers(0, VOCAB, n), rules[topic, x[:, t - 1]])
    return torch.from_numpy(x)


class Experts(nn.Module):
    def __init__(self, hidden=48, rate=5e-3):
        super().__init__()
        self.centroids = nn.Parameter(torch.randn(EXPERTS, DIM) * DIM**-0.5)
        self.w_in = nn.Parameter(torch.randn(EXPERTS, DIM, hidden) * DIM**-0.5)
        self.w_out = nn.Parameter(torch.randn(EXPERTS, hidden, DIM) * hidden**-0.5 * 0.5)
        self.shared = nn.Sequential(nn.Linear(DIM, hidden), nn.SiLU(), nn.Linear(hidden, DIM))
        self.register_buffer("bias", torch.zeros(EXPERTS))
        self.register_buffer("count", torch.zeros(EXPERTS))
        self.rate = rate

    def forward(self, x):
        flat = x.flatten(0, 1)
        score = (flat @ self.centroids.T).sigmoid()
        chosen = (score.detach() + self.bias).topk(TOP, -1).indices
        gate = score.gather(1, chosen)
        gate = gate / gate.sum(-1, keepdim=True)
        out = self.shared(flat)
        for e in range(EXPERTS):
            row, col = (chosen == e).nonzero(as_tuple=True)
            if len(row):
                y = F.silu(flat[row] @ self.w_in[e]) @ self.w_out[e]
                out = out.index_add(0, row, y * gate[row, col, None])
        if self.training:
            self.count += F.one_hot(chosen, EXPERTS).sum((0, 1))
        return out.view_as(x)

    @torch.no_grad()
    def rebalance(self):
        share = self.count / self.count.sum()
        self.bias += self.rate * torch.sign(share.mean() - share)
        self.count.zero_()
        return share


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.qkv, self.o = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.moe = Experts()

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (4, -1)).transpose(1, 2) for t in self.qkv(self.n1(x)).chunk(3, -1))
        x = x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.moe(self.n2(x))


class LM(nn.Module):
    def __init__(self, depth=2):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, DIM), nn.Embedding(CTX, DIM)
        nn.init.normal_(self.tok.weight, std=0.3)
        nn.init.normal_(self.pos.weight, std=0.1)
        self.blocks = nn.ModuleList(Block() for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(DIM), nn.Linear(DIM, VOCAB)

    def forward(self, ids):
        x = self.tok(ids[:, :-1]) + self.pos.weight
        for b in self.blocks:
            x = b(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), ids[:, 1:].flatten())


model, r = LM(), np.random.default_rng(0)
opt = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.02)
STEPS = 450
sched = torch.optim.lr_scheduler.OneCycleLR(opt, 3e-3, total_steps=STEPS, pct_start=0.1)
for step in range(STEPS):
    loss = model(batch(32, r))
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    sched.step()
    shares = [b.moe.rebalance() for b in model.blocks]
    if step % 30 == 0 or step == STEPS - 1:
        text = " ".join(f"{s:.2f}" for s in shares[-1])
        print(
            f"step {step:3d} loss {loss.item():.4f} load [{text}] bias span "
            f"{(model.blocks[-1].moe.bias.max() - model.blocks[-1].moe.bias.min()).item():.3f}"
        )
model.eval()
with torch.no_grad():
    print(
        "val loss", round(float(np.mean([model(batch(64, np.random.default_rng(50 + i))).item() for i in range(5)])), 4)
    )
