# expect: sick
# symptom: the loss is nan from step 23 on, after a normal start
# axis: model
# cause: mean aggregation divides the neighbour sum by the node degree, a node without edges has degree 0, 0/0 gives nan
# says: (isolated|no (edge|neighbo|bond)|without (edge|neighbo|bond|any)|degree.{0,12}(0|zero)|zero.{0,6}(degree|in-degree|neighbo)|(divi\w*|0\s*/\s*0)[^.]{0,60}(degree|\bdeg\b|neighbo|edge)|clamp\w*[^.]{0,30}\bdeg|\bdeg\w*[^.]{0,30}clamp|lone (atom|node)|disconnected (atom|node))
# onset_step: 23
# fix: clamp the degree to at least 1 before the division
# mended: MENDED=1 clamps the degree at 1
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)

N_ATOM = 7
SOLUBLE = np.array([0.0, 0.9, -0.7, 0.4, -1.1, 0.2, 0.6])


def make_molecule(rng, with_ion):
    n = int(rng.integers(9, 22))
    atoms = rng.integers(0, N_ATOM - 1, size=n)
    edges = [(i, int(rng.integers(max(0, i - 3), i))) for i in range(1, n)]
    for _ in range(int(rng.integers(0, 3))):
        i, j = rng.choice(n, size=2, replace=False)
        edges.append((int(i), int(j)))
    if with_ion:
        atoms = np.append(atoms, N_ATOM - 1)
    deg = np.zeros(len(atoms))
    mix = np.zeros(len(atoms))
    for i, j in edges:
        deg[i] += 1
        deg[j] += 1
        mix[i] += SOLUBLE[atoms[j]]
        mix[j] += SOLUBLE[atoms[i]]
    y = (SOLUBLE[atoms] + 0.5 * mix * (SOLUBLE[atoms] > 0)).mean() * 3 + rng.normal(0, 0.05)
    src = [e[0] for e in edges] + [e[1] for e in edges]
    dst = [e[1] for e in edges] + [e[0] for e in edges]
    return torch.tensor(atoms), torch.tensor([src, dst]), float(y)


class MoleculeSet:
    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        self.items = [make_molecule(rng, with_ion=(i % 900 == 749)) for i in range(n)]

    def batch(self, idx):
        xs, es, gs, ys, off = [], [], [], [], 0
        for g, i in enumerate(idx):
            a, e, y = self.items[i]
            xs.append(a)
            es.append(e + off)
            gs.append(torch.full((len(a),), g))
            ys.append(y)
            off += len(a)
        return torch.cat(xs), torch.cat(es, 1), torch.cat(gs), torch.tensor(ys)


class SageLayer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.own, self.nbr = nn.Linear(d, d), nn.Linear(d, d, bias=False)
        self.norm = nn.LayerNorm(d)

    def forward(self, h, edge):
        src, dst = edge
        total = torch.zeros_like(h).index_add_(0, dst, h[src])
        deg = torch.zeros(h.size(0)).index_add_(0, dst, torch.ones(dst.numel()))
        if MENDED:
            deg = deg.clamp(min=1)
        m = total / deg[:, None]
        return h + F.relu(self.norm(self.own(h) + self.nbr(m)))


class MolNet(nn.Module):
    def __init__(self, d=64, layers=3):
        super().__init__()
        self.emb = nn.Embedding(N_ATOM, d)
        self.layers = nn.ModuleList(SageLayer(d) for _ in range(layers))
        self.head = nn.Sequential(nn.Linear(d, d), nn.ReLU(), nn.Linear(d, 1))

    def forward(self, atoms, edge, graph, n_graphs):
        h = self.emb(atoms)
        for layer in self.layers:
            h = layer(h, edge)
        pooled = torch.zeros(n_graphs, h.size(1)).index_add_(0, graph, h)
        size = torch.bincount(graph, minlength=n_graphs).float()
        return self.head(pooled / size[:, None]).squeeze(1)


def main():
    torch.manual_seed(4)
    data, valid = MoleculeSet(4800, 0), MoleculeSet(300, 1)
    model = MolNet()
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-4)
    B, step = 32, 0
    va = valid.batch([i for i in range(300)])
    order = np.arange(len(data.items))
    for epoch in range(3):
        for i in range(0, len(order), B):
            idx = order[i : i + B]
            atoms, edge, graph, y = data.batch(idx)
            loss = F.mse_loss(model(atoms, edge, graph, len(idx)), y)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 2.0)
            opt.step()
            if step % 10 == 0 or step < 30:
                print(f"step {step:4d} mse {loss.item():.4f}")
            step += 1
        np.random.default_rng(epoch).shuffle(order)
        with torch.no_grad():
            print(f"epoch {epoch} valid mse {F.mse_loss(model(*va[:3], 300), va[3]).item():.4f} var {va[3].var():.4f}")


if __name__ == "__main__":
    main()
