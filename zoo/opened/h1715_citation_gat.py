# expect: healthy
# symptom: the forward pass uses the nodes, features and edges of the test set (looks like leakage) and the loss covers only 4 % of the outputs; full batch, one step per epoch, training accuracy 1.0 early: the usual transductive set-up
# axis: none
# mended: none
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(16)
rng = np.random.default_rng(16)
N, NCLS, WORDS, STEPS = 1500, 6, 300, 220


def citation_graph():
    """papers of six fields; citations mostly inside a field; sparse bag-of-words features"""
    y = rng.integers(0, NCLS, N)
    topic = rng.dirichlet(np.full(WORDS, 0.08), NCLS)
    common = rng.dirichlet(np.full(WORDS, 0.5))
    x = np.zeros((N, WORDS), dtype=np.float32)
    for i in range(N):
        x[i, rng.choice(WORDS, 14, p=0.35 * topic[y[i]] + 0.65 * common)] = 1
    members = [np.flatnonzero(y == c) for c in range(NCLS)]
    src, dst = [], []
    for i in range(N):
        for _ in range(rng.integers(1, 4)):
            j = rng.choice(members[y[i]]) if rng.random() < 0.8 else rng.integers(0, N)
            src += [i, j]
            dst += [j, i]
    loops = np.arange(N)
    edges = np.unique(np.stack([np.r_[src, loops], np.r_[dst, loops]]), axis=1)
    x = x / x.sum(1, keepdims=True)
    return torch.tensor(x), torch.tensor(edges), torch.tensor(y)


class GATLayer(nn.Module):
    def __init__(self, i, o, heads, concat):
        super().__init__()
        self.lin = nn.Linear(i, heads * o, bias=False)
        self.a_src, self.a_dst = (nn.Parameter(torch.empty(1, heads, o)) for _ in range(2))
        nn.init.xavier_uniform_(self.lin.weight)
        nn.init.xavier_uniform_(self.a_src)
        nn.init.xavier_uniform_(self.a_dst)
        self.heads, self.concat = heads, concat

    def forward(self, x, edges):
        src, dst = edges
        h = self.lin(F.dropout(x, 0.5, self.training)).view(len(x), self.heads, -1)
        e = F.leaky_relu((h * self.a_src).sum(-1)[src] + (h * self.a_dst).sum(-1)[dst], 0.2)
        e = (e - e.max()).exp()
        z = torch.zeros(len(x), self.heads).index_add(0, dst, e)
        w = F.dropout(e / z[dst], 0.3, self.training)
        out = torch.zeros_like(h).index_add(0, dst, h[src] * w[..., None])
        return out.flatten(1) if self.concat else out.mean(1)


class GAT(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1 = GATLayer(WORDS, 8, 6, True)
        self.l2 = GATLayer(48, NCLS, 2, False)

    def forward(self, x, edges):
        return self.l2(F.elu(self.l1(x, edges)), edges)


x, edges, y = citation_graph()
train = torch.zeros(N, dtype=torch.bool)
for c in range(NCLS):
    train[torch.tensor(rng.choice(np.flatnonzero(y.numpy() == c), 10, replace=False))] = True
rest = torch.randperm(N)
rest = rest[~train[rest]]
val, test = rest[:300], rest[300:1000]
print(f"{N} nodes, {edges.shape[1]} edges, {int(train.sum())} labelled")
model = GAT()
opt = torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=1e-3)
best, t0 = (0.0, 0.0, 0), time.time()
for step in range(STEPS):
    model.train()
    out = model(x, edges)
    loss = F.cross_entropy(out[train], y[train])
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 5 == 0:
        model.eval()
        with torch.no_grad():
            hit = model(x, edges).argmax(1) == y
        a = [hit[m].float().mean().item() for m in (train, val, test)]
        if a[1] > best[0]:
            best = (a[1], a[2], step)
        if step % 10 == 0:
            print(f"epoch {step:3d} loss {loss.item():.4f} acc train {a[0]:.3f} val {a[1]:.3f}")
print(f"== best val {best[0]:.3f} (epoch {best[2]}), test there {best[1]:.3f} ({time.time() - t0:.1f}s)")
