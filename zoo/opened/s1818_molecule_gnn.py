# expect: sick
# symptom: the graph classifier learns a little and stays far below what is known to be possible; no error, no strange numbers
# axis: data
# cause: the collate function puts several graphs into one big graph but does not add the node offset to edge_index, so all edges connect nodes of the first graph and the others get no messages
# says: offset|(edge_?index|edges|node (index|indices|ids|number)).{0,200}(shift|first graph|wrong (graph|node)|collate|increment|cumulative|not (adjusted|added|moved|renumber)|same nodes|local|relative)|collate.{0,200}(edge|node)
# onset_step: 0
# fix: add the number of nodes so far to each graph's edge_index when collating
# mended: collate adds the running node count to edge_index
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(9)

ATOMS, BATCH, EPOCHS = 5, 32, 12


def random_molecule(rng):
    """Random tree with a few rings; active if it has many bonds between unlike atoms or much of atom 4."""
    n = int(rng.integers(8, 18))
    kind = rng.integers(0, ATOMS, n)
    bonds = {(int(rng.integers(0, i)), i) for i in range(1, n)}
    for _ in range(rng.integers(1, 4)):
        a, b = sorted(rng.choice(n, 2, replace=False).tolist())
        bonds.add((a, b))
    same = np.mean([(kind[a] < 2) == (kind[b] < 2) for a, b in bonds])
    score = 6.0 * (same - 0.53) + 2.5 * (np.mean(kind == 4) - 0.2)
    src = [a for a, b in bonds] + [b for a, b in bonds]
    dst = [b for a, b in bonds] + [a for a, b in bonds]
    return {"x": torch.from_numpy(kind), "edge_index": torch.tensor([src, dst]), "y": torch.tensor(float(score > 0))}


def collate(graphs):
    xs, edges, batch, ys = [], [], [], []
    total = 0
    for i, g in enumerate(graphs):
        n = len(g["x"])
        xs.append(g["x"])
        edges.append(g["edge_index"] + total if MENDED else g["edge_index"])
        batch.append(torch.full((n,), i))
        ys.append(g["y"])
        total += n
    return torch.cat(xs), torch.cat(edges, 1), torch.cat(batch), torch.stack(ys)


class GINLayer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.eps = nn.Parameter(torch.zeros(1))
        self.mlp = nn.Sequential(nn.Linear(d, 2 * d), nn.ReLU(), nn.Linear(2 * d, d))
        self.norm = nn.LayerNorm(d)

    def forward(self, h, edge_index):
        src, dst = edge_index
        agg = torch.zeros_like(h).index_add_(0, dst, h[src])
        return h + F.relu(self.norm(self.mlp((1 + self.eps) * h + agg)))


class GraphClassifier(nn.Module):
    def __init__(self, d=64, layers=3):
        super().__init__()
        self.embed = nn.Embedding(ATOMS, d)
        self.layers = nn.ModuleList(GINLayer(d) for _ in range(layers))
        self.head = nn.Sequential(nn.Linear(d, d), nn.ReLU(), nn.Dropout(0.1), nn.Linear(d, 1))

    def forward(self, x, edge_index, batch, n_graphs):
        h = self.embed(x)
        for layer in self.layers:
            h = layer(h, edge_index)
        pooled = torch.zeros(n_graphs, h.shape[1]).index_add_(0, batch, h)
        count = torch.bincount(batch, minlength=n_graphs).unsqueeze(1)
        return self.head(pooled / count).squeeze(1)


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    hits = total = 0
    for x, e, b, y in loader:
        hits += ((model(x, e, b, len(y)) > 0).float() == y).sum().item()
        total += len(y)
    model.train()
    return hits / total


def main():
    rng = np.random.default_rng(14)
    data = [random_molecule(rng) for _ in range(2400)]
    print("positive share %.3f" % torch.stack([g["y"] for g in data]).mean())
    train = DataLoader(data[:1920], BATCH, shuffle=True, collate_fn=collate, generator=torch.Generator().manual_seed(1))
    valid = DataLoader(data[1920:], BATCH, collate_fn=collate)
    model = GraphClassifier()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    step, t0 = 0, time.time()
    for epoch in range(EPOCHS):
        for x, e, b, y in train:
            loss = F.binary_cross_entropy_with_logits(model(x, e, b, len(y)), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 30 == 0:
                print(f"step {step:4d} loss {loss.item():.4f} ({time.time() - t0:.1f}s)")
            step += 1
        print(f"== epoch {epoch} valid accuracy {accuracy(model, valid):.3f}")


if __name__ == "__main__":
    main()
