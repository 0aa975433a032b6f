# expect: sick
# symptom: the loss falls a part of the way or begins far too high, and stays there
# axis: model
# cause: the recurrence multiplies its state by a factor above 1 in every step, so the state grows exponentially
# says: state|recurren|grow
# onset_step: 0
# fix: keep the factor between 0 and 1
# mended: yes
import os
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"


@dataclass
class HParams:
    vocab: int = 16
    dim: int = 32
    heads: int = 2
    length: int = 24
    batch: int = 32
    steps: int = 36
    lr: float = 3e-3


class GatedLinearAttention(nn.Module):
    def __init__(self, hp):
        super().__init__()
        self.h, self.dk = hp.heads, hp.dim // hp.heads
        self.q = nn.Linear(hp.dim, hp.dim, bias=False)
        self.k = nn.Linear(hp.dim, hp.dim, bias=False)
        self.v = nn.Linear(hp.dim, hp.dim, bias=False)
        self.gate = nn.Linear(hp.dim, hp.heads)
        self.norm = nn.LayerNorm(self.dk)
        self.o = nn.Linear(hp.dim, hp.dim)

    def forward(self, x):
        n, t, _ = x.shape
        q, k, v = (f(x).view(n, t, self.h, self.dk) for f in (self.q, self.k, self.v))
        k = F.normalize(k, dim=-1)
        forget = -F.softplus(self.gate(x) + 1.0) if MENDED else F.softplus(self.gate(x) + 1.0)
        state = x.new_zeros(n, self.h, self.dk, self.dk)
        outs = []
        for i in range(t):
            write = k[:, i].unsqueeze(-1) * v[:, i].unsqueeze(-2)
            state = forget[:, i, :, None, None].exp() * state + write
            outs.append(torch.einsum("nhk,nhkv->nhv", q[:, i], state))
        y = self.norm(torch.stack(outs, 1))
        return self.o(y.flatten(2))


class Block(nn.Module):
    def __init__(self, hp):
        super().__init__()
        self.emb = nn.Embedding(hp.vocab, hp.dim)
        self.pre = nn.LayerNorm(hp.dim)
        self.mem = GatedLinearAttention(hp)
        self.head = nn.Linear(hp.dim, hp.vocab)

    def forward(self, ids):
        x = self.emb(ids)
        return self.head(x + self.mem(self.pre(x)))


def recall_batch(hp):
    """The second half of each row repeats the first half."""
    half = hp.length // 2
    ids = torch.randint(0, hp.vocab, (hp.batch, half))
    return torch.cat([ids, ids], dim=1)


def train(hp):
    torch.manual_seed(88)
    net = Block(hp)
    opt = torch.optim.Adam(net.parameters(), lr=hp.lr)
    for step in range(hp.steps):
        ids = recall_batch(hp)
        logits = net(ids[:, :-1])
        loss = F.cross_entropy(logits.reshape(-1, hp.vocab), ids[:, 1:].reshape(-1))
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        if (step + 1) % 9 == 0:
            print(f"step {step + 1}: loss {loss.item():.4f}")


if __name__ == "__main__":
    train(HParams())
