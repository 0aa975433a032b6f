# expect: sick
# symptom: the loss drops to about the variance of the target (1.0) at once and stays there; the predictions are all nearly the same and R2 is about 0
# axis: loss
# cause: the network returns (G, 1) while the target is (G,), so prediction - target broadcasts to a (G, G) matrix and every graph is fitted to all targets, i.e. to their mean
# says: broadcast|shape.{0,80}(mismatch|\(|differ|wrong|\[|not match|don.?t match)|squeeze|unsqueeze|view_as|\(?\w+, ?1\)?.{0,80}(against|minus|and|vs|versus|with).{0,80}\(\w+,? ?\)|\[\w+, ?1\]
# onset_step: 0
# fix: squeeze the last dimension of the prediction (or give the target the shape (G, 1))
# mended: the model's output is squeezed to (G,)
"""Graph network that regresses a property of small random molecule-like graphs."""

import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(31)
rng = np.random.default_rng(31)

ATOMS, N_GRAPHS, BATCH, EPOCHS = 6, 1200, 32, 14
AFFINITY = rng.normal(size=(ATOMS, ATOMS))
AFFINITY = (AFFINITY + AFFINITY.T) / 2
WEIGHT = rng.normal(size=ATOMS)


def make_graph():
    """A random tree with one or two extra bonds."""
    n = int(rng.integers(6, 14))
    atoms = rng.integers(0, ATOMS, size=n)
    bonds = [(i, int(rng.integers(max(0, i - 3), i))) for i in range(1, n)]
    for _ in range(int(rng.integers(1, 3))):
        a, b = rng.choice(n, size=2, replace=False)
        bonds.append((int(a), int(b)))
    prop = sum(AFFINITY[atoms[a], atoms[b]] for a, b in bonds) + WEIGHT[atoms].sum()
    edges = np.array(bonds + [(b, a) for a, b in bonds]).T
    return torch.from_numpy(atoms), torch.from_numpy(edges), float(prop + 0.1 * rng.normal())


def collate(graphs):
    atoms, edges, owner, target, shift = [], [], [], [], 0
    for g, (a, e, y) in enumerate(graphs):
        atoms.append(a)
        edges.append(e + shift)
        owner.append(torch.full((len(a),), g))
        target.append(y)
        shift += len(a)
    return torch.cat(atoms), torch.cat(edges, dim=1), torch.cat(owner), torch.tensor(target)


class GINLayer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.eps = nn.Parameter(torch.zeros(1))
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.ReLU(), nn.Linear(2 * dim, dim))
        self.norm = nn.LayerNorm(dim)

    def forward(self, h, edges):
        src, dst = edges
        agg = torch.zeros_like(h).index_add_(0, dst, h[src])
        return h + F.relu(self.norm(self.mlp((1 + self.eps) * h + agg)))


class GraphRegressor(nn.Module):
    def __init__(self, dim=48, layers=3):
        super().__init__()
        self.emb = nn.Embedding(ATOMS, dim)
        self.layers = nn.ModuleList([GINLayer(dim) for _ in range(layers)])
        self.readout = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, 1))

    def forward(self, atoms, edges, owner, n_graphs):
        h = self.emb(atoms)
        for layer in self.layers:
            h = layer(h, edges)
        pooled = torch.zeros(n_graphs, h.size(1)).index_add_(0, owner, h)
        out = self.readout(pooled / 10.0)
        return out.squeeze(-1) if MENDED else out


class Normaliser:
    def __init__(self, graphs):
        y = np.array([g[2] for g in graphs])
        self.mean, self.std = float(y.mean()), float(y.std())

    def __call__(self, y):
        return (y - self.mean) / self.std


@torch.no_grad()
def r2(model, graphs, norm):
    model.eval()
    atoms, edges, owner, y = collate(graphs)
    y = norm(y)
    pred = model(atoms, edges, owner, len(y)).reshape(-1)
    return 1.0 - ((pred - y) ** 2).mean().item() / y.var().item(), pred.std().item()


def main():
    graphs = [make_graph() for _ in range(N_GRAPHS)]
    train, test = graphs[:-200], graphs[-200:]
    norm = Normaliser(train)
    model = GraphRegressor()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    step = 0
    for epoch in range(EPOCHS):
        model.train()
        total, batches = 0.0, 0
        order = rng.permutation(len(train))
        for i in range(0, len(order), BATCH):
            atoms, edges, owner, y = collate([train[j] for j in order[i : i + BATCH]])
            pred = model(atoms, edges, owner, len(y))
            loss = ((pred - norm(y)) ** 2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            total, batches, step = total + loss.item(), batches + 1, step + 1
        score, spread = r2(model, test, norm)
        print(
            f"epoch {epoch} step {step} train mse {total / batches:.4f} test R2 {score:.3f} spread of predictions {spread:.3f}"
        )


if __name__ == "__main__":
    main()
