# expect: sick
# symptom: the regression loss hardly goes below the variance of the target, train and test alike; larger model or lr does not help
# axis: data
# cause: the collate function concatenates the edge indices of the graphs without adding each graph's node offset, so all edges of the batch point into the nodes of the first graph(s) and the others pass no messages
# says: (offset|shift|increment).{0,80}(edge|node|index|indices|graph|batch)|(edge|adjacen|index|indices).{0,80}(offset|not shifted|unshifted|first graph|same (nodes|graph)|wrong graph|wrong nodes|other graphs?)|(collat|batching).{0,80}(edge|offset|graph)
# onset_step: 1
# fix: add the running node count to each graph's edge index in collate
# mended: with MENDED=1 collate adds the running node count to edge_index before concatenating
import os
import random

import torch
from torch import nn
from torch.utils.data import DataLoader

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"

N_TYPES = 5


def random_molecule(rng):
    """Random tree with a few ring closures; the target is a sum of bond energies by atom pair."""
    n = rng.randint(8, 18)
    atoms = [rng.randrange(N_TYPES) for _ in range(n)]
    bonds = {(rng.randrange(i), i) for i in range(1, n)}
    for _ in range(rng.randint(0, 3)):
        a, b = sorted(rng.sample(range(n), 2))
        bonds.add((a, b))
    energy = 0.0
    for a, b in bonds:
        s, t = sorted((atoms[a], atoms[b]))
        energy += ENERGY[s][t]
    src = [a for a, b in bonds] + [b for a, b in bonds]
    dst = [b for a, b in bonds] + [a for a, b in bonds]
    return dict(x=torch.tensor(atoms), edge_index=torch.tensor([src, dst]), y=torch.tensor([energy / 3.0]))


_table = random.Random(5)
ENERGY = [[_table.choice([-1.5, -0.5, 0.5, 1.5]) for _ in range(N_TYPES)] for _ in range(N_TYPES)]


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
    return torch.cat(xs), torch.cat(edges, dim=1), torch.cat(batch), torch.stack(ys)


class MPLayer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.msg = nn.Sequential(nn.Linear(2 * dim, dim), nn.ReLU(), nn.Linear(dim, dim))
        self.upd = nn.Sequential(nn.Linear(2 * dim, dim), nn.ReLU(), nn.Linear(dim, dim))
        self.norm = nn.LayerNorm(dim)

    def forward(self, h, edge_index):
        src, dst = edge_index
        m = self.msg(torch.cat([h[src], h[dst]], dim=-1))
        agg = torch.zeros_like(h).index_add_(0, dst, m)
        return self.norm(h + self.upd(torch.cat([h, agg], dim=-1)))


class EnergyNet(nn.Module):
    def __init__(self, dim=40, layers=2):
        super().__init__()
        self.embed = nn.Embedding(N_TYPES, dim)
        self.layers = nn.ModuleList(MPLayer(dim) for _ in range(layers))
        self.head = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, 1))

    def forward(self, x, edge_index, batch, num_graphs):
        h = self.embed(x)
        for layer in self.layers:
            h = layer(h, edge_index)
        per_atom = self.head(h)
        return torch.zeros(num_graphs, 1).index_add_(0, batch, per_atom)


@torch.no_grad()
def test_mse(model, loader):
    model.eval()
    se, n = 0.0, 0
    for x, e, b, y in loader:
        se += (model(x, e, b, len(y)) - y).pow(2).sum().item()
        n += len(y)
    model.train()
    return se / n


def main():
    torch.manual_seed(0)
    rng = random.Random(0)
    train = [random_molecule(rng) for _ in range(1600)]
    test = [random_molecule(rng) for _ in range(320)]
    train_loader = DataLoader(train, batch_size=32, shuffle=True, collate_fn=collate)
    test_loader = DataLoader(test, batch_size=32, collate_fn=collate)
    var = torch.cat([g["y"] for g in test]).var().item()
    print(f"target variance {var:.3f}")

    model = EnergyNet()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    step = 0
    for epoch in range(8):
        for x, e, b, y in train_loader:
            loss = nn.functional.mse_loss(model(x, e, b, len(y)), y)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 2.0)
            opt.step()
            step += 1
            if step % 50 == 0:
                print(f"step {step} mse {loss.item():.4f}")
        print(f"epoch {epoch}: test mse {test_mse(model, test_loader):.4f}")


if __name__ == "__main__":
    main()
