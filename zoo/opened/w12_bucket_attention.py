# expect: sick
# symptom: the loss stays far above what the model can reach
# axis: model
# cause: places stay sorted by bucket after attention in chunks, so each row gets the result of another row
# says: permut|un-?sort|argsort|(original|wrong|sorted|grouped|another) order|not (put|sorted|scattered|written) back|(wrong|other|another|different) (row|sample|token)|(row|token|output|result)s?.{0,40}(mixed|misalign|shuffl|scrambl)
# onset_step: 0
# fix: put the results back into the order of the rows
# mended: the places are scattered back
import os
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"


class BucketAttention(nn.Module):
    def __init__(self, dim, n_buckets=4, chunk=8):
        super().__init__()
        self.chunk = chunk
        self.qk = nn.Linear(dim, dim, bias=False)
        self.v = nn.Linear(dim, dim, bias=False)
        self.proj = nn.Linear(dim, dim)
        self.register_buffer("planes", torch.randn(dim, n_buckets // 2))

    def forward(self, x):
        b, t, d = x.shape
        qk, v = self.qk(x), self.v(x)
        rot = qk.detach() @ self.planes
        bucket = torch.cat([rot, -rot], -1).argmax(-1)
        key = bucket * t + torch.arange(t)
        idx = key.sort(dim=1).indices.unsqueeze(-1).expand(-1, -1, d)
        qk = qk.gather(1, idx).view(b, t // self.chunk, self.chunk, d)
        v = v.gather(1, idx).view(b, t // self.chunk, self.chunk, d)
        pieces = []
        for c in range(t // self.chunk):
            q = qk[:, c]
            att = (q @ F.normalize(q, dim=-1).transpose(1, 2) / math.sqrt(d)).softmax(-1)
            pieces.append(att @ v[:, c])
        joined = torch.cat(pieces, dim=1)
        if MENDED:
            joined = torch.empty_like(joined).scatter(1, idx, joined)
        return self.proj(joined)


class Layer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.att = BucketAttention(dim)
        self.ff = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        x = x + self.att(self.n1(x))
        return x + self.ff(self.n2(x))


class Tagger(nn.Module):
    def __init__(self, vocab=20, tags=4, dim=32, t=32):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.pos = nn.Parameter(0.02 * torch.randn(t, dim))
        self.layers = nn.ModuleList([Layer(dim) for _ in range(2)])
        self.out = nn.Linear(dim, tags)

    def forward(self, x):
        h = self.emb(x) + self.pos
        for layer in self.layers:
            h = layer(h)
        return self.out(h)


def get_batch(n=32, t=32):
    x = torch.randint(0, 20, (n, t))
    tag = x % 4
    dup = (x.unsqueeze(1) == x.unsqueeze(2)).sum(-1) > 2
    return x, torch.where(dup, (tag + 1) % 4, tag)


if __name__ == "__main__":
    torch.manual_seed(0)
    model = Tagger()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step in range(120):
        x, y = get_batch()
        loss = F.cross_entropy(model(x).transpose(1, 2), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 19:
            print("step", step + 1, "loss %.4f" % loss.item())
