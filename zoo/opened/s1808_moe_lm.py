# expect: sick
# symptom: no error and the loss goes down, but it stays far above what the same model can reach; the expert loads look balanced
# axis: model
# cause: the tokens are sorted by expert before the expert MLPs, and the concatenated outputs are added to the residual stream in that sorted order; the inverse permutation is missing, so each token gets the expert output of some other token
# says: permut|un-?sort|argsort|scatter|(inverse|original|sorted|expert|wrong|token).{0,20}order|order of (the )?(token|output|row)|(wrong|other|another|different|foreign|unrelated).{0,20}(token|row|position)|(token|row|output)s?.{0,40}(mix(ed)? up|misalign|shuffl|scrambl|not (put|mapped|written) back|wrong (place|token|position|row))
# onset_step: 0
# fix: put the outputs back into token order (out[order] = y, or y[order.argsort()])
# mended: the expert outputs are brought back into token order before they are added
"""Mixture-of-experts language model (switch routing) on text from several domains."""

import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(17)

DOMAINS, VOCAB, CTX, DIM, EXPERTS = 8, 64, 24, 48, 8
rng = np.random.default_rng(6)
tables = np.stack([np.stack([rng.permutation(VOCAB) for _ in range(2)]) for _ in range(DOMAINS)])


def sample(bs, r):
    d = r.integers(0, DOMAINS, bs)
    x = np.zeros((bs, CTX + 1), dtype=np.int64)
    x[:, 0] = d  # a tag for the domain
    x[:, 1] = r.integers(0, VOCAB, bs)
    for t in range(2, CTX + 1):
        pick = (r.random(bs) < 0.15).astype(int)
        x[:, t] = tables[d, pick, x[:, t - 1]]
    return torch.from_numpy(x)


class SwitchFFN(nn.Module):
    def __init__(self, dim, n_experts, hidden):
        super().__init__()
        self.n = n_experts
        self.router = nn.Linear(dim, n_experts, bias=False)
        self.w1 = nn.Parameter(torch.randn(n_experts, dim, hidden) * dim**-0.5)
        self.w2 = nn.Parameter(torch.randn(n_experts, hidden, dim) * hidden**-0.5 * 0.5)

    def forward(self, x):
        shape = x.shape
        x = x.reshape(-1, shape[-1])
        probs = self.router(x).softmax(-1)
        gate, chosen = probs.max(-1)
        load = F.one_hot(chosen, self.n).float().mean(0)
        balance = self.n * (load * probs.mean(0)).sum()

        order = chosen.argsort(stable=True)  # contiguous slices, one matmul per expert
        sizes = torch.bincount(chosen, minlength=self.n).tolist()
        parts = [F.gelu(t @ self.w1[e]) @ self.w2[e] for e, t in enumerate(x[order].split(sizes))]
        y = torch.cat(parts) * gate[order, None]
        if MENDED:
            y = y[order.argsort()]
        return y.reshape(shape), balance, load.detach()


class MoEBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.attn = nn.MultiheadAttention(DIM, 4, batch_first=True)
        self.ffn = SwitchFFN(DIM, EXPERTS, 64)
        self.register_buffer("causal", torch.triu(torch.ones(CTX, CTX, dtype=torch.bool), 1))

    def forward(self, x):
        h = self.n1(x)
        x = x + self.attn(h, h, h, attn_mask=self.causal, need_weights=False)[0]
        y, balance, stats = self.ffn(self.n2(x))
        return x + y, balance, stats


class MoELM(nn.Module):
    def __init__(self, depth=2):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, DIM), nn.Embedding(CTX, DIM)
        self.blocks = nn.ModuleList(MoEBlock() for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(DIM), nn.Linear(DIM, VOCAB)
        nn.init.normal_(self.tok.weight, std=0.3)
        nn.init.normal_(self.pos.weight, std=0.1)

    def forward(self, ids):
        x = self.tok(ids[:, :-1]) + self.pos.weight
        balance, stats = 0.0, []
        for b in self.blocks:
            x, bal, s = b(x)
            balance = balance + bal / len(self.blocks)
            stats.append(s)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()), balance, stats


model = MoELM()
opt = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.98), weight_decay=0.01)
r = np.random.default_rng(0)
STEPS = 360
for step in range(STEPS):
    for g in opt.param_groups:
        g["lr"] = 3e-3 * min(1, (step + 1) / 30) * (1 - 0.9 * step / STEPS)
    lm, balance, stats = model(sample(32, r))
    loss = lm + 0.02 * balance
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    if step % 30 == 0 or step == STEPS - 1:
        share = " ".join(f"{v:.2f}" for v in stats[-1].sort(descending=True).values)
        print(f"step {step:3d} loss {lm.item():.4f} balance {balance.item():.3f} load [{share}]")
model.eval()
with torch.no_grad():
    print(
        "val loss",
        round(float(np.mean([model(sample(64, np.random.default_rng(900 + i)))[0].item() for i in range(6)])), 4),
    )
