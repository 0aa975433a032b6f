# expect: healthy
# symptom: padded rows go through attention without a padding mask
# axis: none
# mended: none
import math
import random
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
random.seed(6)
torch.manual_seed(6)
PAD, BOS, EOS = 0, 1, 2
V = 40


def recipe():
    """A walk on a ring of ingredients with stride 1 or 3, 5 to 24 tokens."""
    n, cur, stride = random.randint(5, 24), random.randrange(V - 3), random.choice([1, 3])
    out = [BOS]
    for _ in range(n):
        out.append(3 + cur)
        cur = (cur + stride) % (V - 3)
    return out + [EOS]


def batch(size):
    rows = [recipe() for _ in range(size)]
    width = max(map(len, rows))
    return torch.tensor([r + [PAD] * (width - len(r)) for r in rows])


class SelfAttention(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads, self.qkv, self.o = heads, nn.Linear(d, 3 * d), nn.Linear(d, d)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        w = q @ k.transpose(-1, -2) / math.sqrt(d // self.heads)
        future = torch.triu(torch.ones(t, t, dtype=torch.bool), 1)
        w = w.masked_fill(future, float("-inf")).softmax(-1)
        return self.o((w @ v).transpose(1, 2).reshape(b, t, d))


class LM(nn.Module):
    def __init__(self, d=40):
        super().__init__()
        self.emb, self.pos = nn.Embedding(V, d), nn.Embedding(40, d)
        self.attn = nn.ModuleList(SelfAttention(d, 4) for _ in range(2))
        self.ff = nn.ModuleList(nn.Sequential(nn.Linear(d, 96), nn.GELU(), nn.Linear(96, d)) for _ in range(2))
        self.n1 = nn.ModuleList(nn.LayerNorm(d) for _ in range(2))
        self.n2 = nn.ModuleList(nn.LayerNorm(d) for _ in range(2))
        self.out = nn.Linear(d, V)

    def forward(self, ids):
        h = self.emb(ids) + self.pos.weight[: ids.shape[1]]
        for a, f, n1, n2 in zip(self.attn, self.ff, self.n1, self.n2):
            h = h + a(n1(h))
            h = h + f(n2(h))
        return self.out(h)


lm = LM()
opt = torch.optim.AdamW(lm.parameters(), lr=3e-3)
for step in range(201):
    ids = batch(24)
    logits = lm(ids[:, :-1])
    loss = F.cross_entropy(logits.reshape(-1, V), ids[:, 1:].reshape(-1), ignore_index=PAD)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 40 == 0:
        print(f"step {step} loss {loss.item():.4f} ppl {loss.exp().item():.2f}")
