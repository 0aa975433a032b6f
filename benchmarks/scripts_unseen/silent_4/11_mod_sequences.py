# expect: sick
# cause: The transformer is a next-token model but gets no causal mask, so each position reads its own answer and generation does not work.
import math

import torch
from torch import nn

torch.manual_seed(64)
P, LENGTH = 17, 20


def sequences(n, noise=0.4):
    """x[t] = a * x[t-1] + b (mod P) with a and b fixed per row; now and then a random value"""
    a = torch.randint(2, 5, (n,))
    b = torch.randint(0, 2, (n,))
    cols = [torch.randint(0, P, (n,))]
    for _ in range(LENGTH):
        cols.append(torch.where(torch.rand(n) < noise, torch.randint(0, P, (n,)), (a * cols[-1] + b) % P))
    return torch.stack(cols, 1)


class SelfAttention(nn.Module):
    def __init__(self, dim, n_head):
        super().__init__()
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        self.n_head = n_head

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.n_head, d // self.n_head).permute(2, 0, 3, 1, 4)
        att = (q @ k.transpose(-2, -1)) / math.sqrt(q.size(-1))
        att = att.softmax(dim=-1)
        y = (att @ v).transpose(1, 2).reshape(b, t, d)
        return self.out(y)


class Block(nn.Module):
    def __init__(self, dim, n_head):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = SelfAttention(dim, n_head)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class Model(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.wte = nn.Embedding(P, dim)
        self.wpe = nn.Parameter(0.1 * torch.randn(LENGTH + 1, dim))
        self.blocks = nn.Sequential(Block(dim, 4), Block(dim, 4))
        self.ln = nn.LayerNorm(dim)
        self.lm_head = nn.Linear(dim, P)

    def forward(self, idx):
        return self.lm_head(self.ln(self.blocks(self.wte(idx) + self.wpe[: idx.shape[1]])))


model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=2.5e-3, weight_decay=0.01)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2.5e-3, total_steps=450, pct_start=0.1)
for step in range(450):
    rows = sequences(64)
    logits = model(rows[:, :-1])
    loss = nn.functional.cross_entropy(logits.reshape(-1, P), rows[:, 1:].reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    if step % 75 == 0 or step == 449:
        print(f"{step:4d} train loss {loss.item():.4f}")

with torch.no_grad():
    rows = sequences(300, noise=0.0)
    ctx = rows[:, :12]
    for _ in range(4):
        ctx = torch.cat([ctx, model(ctx)[:, -1].argmax(-1, keepdim=True)], 1)
print("continuation right:", (ctx[:, 12:] == rows[:, 12:16]).float().mean().item())
