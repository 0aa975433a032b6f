"""Two towers with a streaming estimate of what is sampled, which is taken off the scores, by another hand."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(101)
DOCS, QDIM, EMB = 400, 20, 24

doc_feat = torch.randn(DOCS, 8)
doc_popularity = torch.distributions.LogNormal(0.0, 1.4).sample((DOCS,))
proj = torch.randn(8, QDIM) / 8**0.5


def clicks(n):
    intent = torch.randn(n, 8)
    d = torch.multinomial(torch.softmax(intent @ doc_feat.t() * 0.7 + doc_popularity.log(), 1), 1).squeeze(1)
    return intent @ proj + 0.1 * torch.randn(n, QDIM), d


class StreamingFrequency:
    def __init__(self, size, decay=0.02):
        self.last = torch.zeros(size)
        self.gap = torch.full((size,), 5.0)
        self.decay = decay

    def observe(self, ids, t):
        u = ids.unique()
        self.gap[u] = (1 - self.decay) * self.gap[u] + self.decay * (t - self.last[u])
        self.last[u] = float(t)

    def log_prob(self, ids):
        return -self.gap[ids].clamp(min=1.0).log()


class QueryEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(QDIM, 64), nn.GELU(), nn.Linear(64, EMB))

    def forward(self, q):
        return self.layers(q)


class DocIndex(nn.Module):
    def __init__(self):
        super().__init__()
        self.vec = nn.Embedding(DOCS, EMB)
        self.prior = nn.Parameter(torch.zeros(DOCS))
        nn.init.normal_(self.vec.weight, std=0.1)


query_enc, index = QueryEncoder(), DocIndex()
freq = StreamingFrequency(DOCS)
optimizer = torch.optim.Adam([*query_enc.parameters(), *index.parameters()], lr=1e-2)
val_q, val_d = clicks(1500)
for step in range(1, 701):
    q, d = clicks(192)
    freq.observe(d, step)
    sims = query_enc(q) @ index.vec(d).t() + index.prior[d]
    sims = sims - freq.log_prob(d)
    same = d.unsqueeze(0).eq(d.unsqueeze(1)).fill_diagonal_(False)
    loss = F.cross_entropy(sims.masked_fill(same, -1e9), torch.arange(len(d)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 70 == 0:
        with torch.no_grad():
            top = (query_enc(val_q) @ index.vec.weight.t() + index.prior).topk(20, dim=1).indices
            hit = (top == val_d[:, None]).any(1).float().mean().item()
        print(f"step {step} loss {loss.item():.4f} hit@20 {hit:.4f}")
