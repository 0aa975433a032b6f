# expect: sick
# symptom: accuracy stops improving early, the loss is flat for the rest of the run
# axis: schedule
# cause: scheduler.step() is called once per batch inside the loop while the MultiStepLR milestones are given in epochs, so the learning rate has been decayed a thousandfold after 80 batches
# says: (sched\w*|milestone|MultiStepLR|learning[- ]rate|\blr\b|decay).{0,200}(per|every|each|after every|inside the|in the)[- ]*(single )?(mini-?)?(batch|step|iteration|inner)|(milestone|sched\w*|decay\w*).{0,160}(epochs?).{0,120}(batch|step|iteration)|(batch|step|iteration)\w*.{0,120}(instead of|rather than|not).{0,30}epoch|(learning[- ]rate|\blr\b).{0,80}(decay\w*|drop\w*|reduc\w*|cut|collaps\w*|fall\w*).{0,60}(too (early|soon|fast|quick)|prematur|far too)
# onset_step: 31
# fix: call scheduler.step() once per epoch, outside the batch loop
# mended: yes
"""Graph classification: which motif was planted in a random graph?

Graphs are small, hence kept as dense adjacency matrices.  GIN layers, sum
pooling at every depth, SGD with step decay.
"""

import os
import time
import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)

N_NODES = 18
MOTIFS = ("cycle", "clique", "star", "bipartite")
EPOCHS = 90
BATCH = 128


def random_tree(rng, n):
    a = np.zeros((n, n), dtype=np.float32)
    for v in range(1, n):
        u = rng.integers(max(0, v - 3), v)
        a[u, v] = a[v, u] = 1
    return a


def plant(a, kind, rng):
    nodes = rng.choice(len(a), size=6, replace=False)
    if kind == "cycle":
        edges = [(nodes[i], nodes[(i + 1) % 6]) for i in range(6)]
    elif kind == "clique":
        edges = [(nodes[i], nodes[j]) for i in range(4) for j in range(i)]
    elif kind == "star":
        edges = [(nodes[0], nodes[i]) for i in range(1, 6)]
    else:
        edges = [(nodes[i], nodes[j]) for i in range(2) for j in range(2, 5)]
    for u, v in edges:
        a[u, v] = a[v, u] = 1
    return a


def make_graphs(n, seed):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, len(MOTIFS), n)
    adj = np.stack([plant(random_tree(rng, N_NODES), MOTIFS[c], rng) for c in y])
    for k in range(n):  # a few spurious edges
        for _ in range(rng.integers(0, 2)):
            u, v = rng.choice(N_NODES, size=2, replace=False)
            adj[k, u, v] = adj[k, v, u] = 1
    deg = adj.sum(-1)
    # node features: constant, degree, closed walks of length three and four
    two = adj @ adj
    walk3 = (two * adj).sum(-1)
    walk4 = (two * two).sum(-1)
    x = np.stack([np.ones_like(deg), deg / 3.0, walk3 / 3.0, walk4 / 12.0 - 1.0], axis=-1)
    return torch.from_numpy(adj), torch.from_numpy(x.astype(np.float32)), torch.from_numpy(y)


def mlp(i, h, o):
    return nn.Sequential(nn.Linear(i, h), nn.LayerNorm(h), nn.ReLU(), nn.Linear(h, o))


class GIN(nn.Module):
    def __init__(self, d_in=4, d=48, depth=3, n_out=len(MOTIFS)):
        super().__init__()
        self.eps = nn.Parameter(torch.zeros(depth))
        self.mlps = nn.ModuleList(mlp(d_in if l == 0 else d, d, d) for l in range(depth))
        self.readouts = nn.ModuleList(nn.Linear(d, n_out) for _ in range(depth))

    def forward(self, adj, h):
        logits = 0
        for eps, f, out in zip(self.eps, self.mlps, self.readouts):
            h = f((1 + eps) * h + adj @ h).relu()
            logits = logits + out(h.mean(dim=1))
        return logits


def accuracy(model, split):
    adj, x, y = split
    with torch.no_grad():
        return (model(adj, x).argmax(-1) == y).float().mean().item()


torch.manual_seed(42)
train, test = make_graphs(1024, 100), make_graphs(600, 101)
model = GIN()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=5e-4)
scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[30, 60, 80], gamma=0.1)
PER_EPOCH = os.environ.get("MENDED") == "1"

start = time.time()
for epoch in range(1, EPOCHS + 1):
    perm = torch.randperm(len(train[2]))
    total = 0.0
    for idx in perm.split(BATCH):
        adj, x, y = (t[idx] for t in train)
        loss = criterion(model(adj, x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if not PER_EPOCH:
            scheduler.step()
        total += loss.item() * len(idx)
    if PER_EPOCH:
        scheduler.step()
    if epoch % 5 == 0:
        print(
            f"epoch {epoch:2d}  loss {total / len(perm):.4f}  train {accuracy(model, train):.3f}  "
            f"test {accuracy(model, test):.3f}  ({time.time() - start:.0f}s)"
        )
