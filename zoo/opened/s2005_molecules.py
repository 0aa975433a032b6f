# expect: sick
# symptom: the graph network's error settles at about what a bag of atom types gives; bonds seem to be of no use, no error anywhere
# axis: data
# cause: the collate function concatenates the graphs' edge indices without adding each graph's node offset, so all edges of the batch point to the first nodes
# says: (edge|adjacen|index|indices|collat\w*|batching).*(offset|shift|increment|first (graph|nodes|molecule|few)|wrong (graph|node|molecule)|cumulative|other graph|local ind)|(offset|increment|shift).*(edge|collat|node ind)
# onset_step: 0
# fix: add the cumulative node count to every graph's edge_index in the collate function
# mended: yes
import os
import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

MENDED = os.environ.get("MENDED") == "1"

ATOMS = 5


class Molecules(Dataset):
    """Random tree-like molecules with a few rings; the energy is a sum over bonds."""

    def __init__(self, n, seed):
        rng = random.Random(seed)
        g = torch.Generator().manual_seed(0)
        table = torch.randn(ATOMS, ATOMS, generator=g)
        self.table = (table + table.T) / 2
        self.items = [self.make(rng) for _ in range(n)]

    def make(self, rng):
        n = rng.randint(6, 18)
        atoms = torch.tensor([rng.randrange(ATOMS) for _ in range(n)])
        bonds = [(rng.randrange(max(0, i - 4), i), i) for i in range(1, n)]
        for _ in range(rng.randint(0, 3)):
            a, b = sorted(rng.sample(range(n), 2))
            if (a, b) not in bonds:
                bonds.append((a, b))
        src, dst = torch.tensor(bonds).T
        energy = self.table[atoms[src], atoms[dst]].sum() / 2
        edge_index = torch.stack([torch.cat([src, dst]), torch.cat([dst, src])])
        return atoms, edge_index, energy

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def collate(items):
    atoms, edges, owner, target = [], [], [], []
    total = 0
    for k, (a, e, y) in enumerate(items):
        atoms.append(a)
        edges.append(e + total if MENDED else e)
        owner.append(torch.full((len(a),), k))
        target.append(y)
        total += len(a)
    return torch.cat(atoms), torch.cat(edges, 1), torch.cat(owner), torch.stack(target)


class MessageLayer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.msg = nn.Sequential(nn.Linear(2 * dim, dim), nn.SiLU(), nn.Linear(dim, dim))
        self.upd = nn.Sequential(nn.Linear(2 * dim, dim), nn.SiLU(), nn.Linear(dim, dim))
        self.norm = nn.LayerNorm(dim)

    def forward(self, h, edge_index):
        src, dst = edge_index
        m = self.msg(torch.cat([h[src], h[dst]], 1))
        agg = torch.zeros_like(h).index_add_(0, dst, m)
        return h + self.norm(self.upd(torch.cat([h, agg], 1)))


class EnergyNet(nn.Module):
    def __init__(self, dim=48, depth=3):
        super().__init__()
        self.embed = nn.Embedding(ATOMS, dim)
        self.layers = nn.ModuleList(MessageLayer(dim) for _ in range(depth))
        self.readout = nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, 1))

    def forward(self, atoms, edge_index, owner, n_graphs):
        h = self.embed(atoms)
        for layer in self.layers:
            h = layer(h, edge_index)
        per_atom = self.readout(h).squeeze(1)
        return torch.zeros(n_graphs).index_add_(0, owner, per_atom)


@torch.no_grad()
def mae(model, loader, mean, std):
    model.eval()
    err = n = 0
    for atoms, edges, owner, y in loader:
        out = model(atoms, edges, owner, len(y)) * std + mean
        err += (out - y).abs().sum().item()
        n += len(y)
    model.train()
    return err / n


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    train_set, val_set = Molecules(3000, 1), Molecules(400, 2)
    train = DataLoader(train_set, 64, shuffle=True, collate_fn=collate, drop_last=True)
    val = DataLoader(val_set, 100, collate_fn=collate)
    ys = torch.stack([y for _, _, y in train_set.items])
    mean, std = ys.mean(), ys.std()
    model = EnergyNet()
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-4)
    epochs = 12
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, epochs * len(train))
    step = 0
    for epoch in range(epochs):
        for atoms, edges, owner, y in train:
            pred = model(atoms, edges, owner, len(y))
            loss = F.smooth_l1_loss(pred, (y - mean) / std)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            opt.step()
            sched.step()
            step += 1
            if step % 25 == 0:
                print(f"step {step} loss {loss.item():.4f}")
        print(f"epoch {epoch} val MAE {mae(model, val, mean, std):.4f} (target std {std:.3f})")


if __name__ == "__main__":
    main()
