# expect: sick
# symptom: the training error falls only part of the way and the test error stays high, without any instability
# axis: data
# cause: the collate function shifts edge indices by the largest edge index plus one instead of the number of atoms, so after every molecule with trailing isolated atoms the edges of the later molecules in the batch point at wrong nodes
# says: (?=[\s\S]*(edge|bond|index|indices|graph))(?=[\s\S]*(offset|shift|cumulative|increment|start index|base index|max|largest|highest|misalign|number of (nodes|atoms)|node count|num_nodes))(?=[\s\S]*(isolat|unbonded|trailing|lone|without (bond|edge)|no (bond|edge)|unconnected|disconnected|wrong (node|atom|graph|molecule)|number of (nodes|atoms)|node count|atom count|num_nodes|collat|batch))
# onset_step: 1
# fix: advance the offset by the number of atoms of the molecule
# mended: yes
"""Bond-energy regression on small molecules with solvent atoms, message passing without libraries."""

import os

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)

ELEMENTS = 5


class Molecules(Dataset):
    def __init__(self, count, seed):
        gen = torch.Generator().manual_seed(seed)
        table_gen = torch.Generator().manual_seed(2024)
        table = torch.randn(ELEMENTS, ELEMENTS, generator=table_gen)
        self.table = table + table.T
        self.items = [self._build(gen) for _ in range(count)]

    def _build(self, gen):
        def randint(lo, hi):
            return int(torch.randint(lo, hi, (1,), generator=gen))

        core = randint(6, 13)
        bonds = [(randint(max(0, v - 3), v), v) for v in range(1, core)]
        if core > 7:
            bonds.append((0, core - 1))
        solvent = randint(1, 3) if randint(0, 4) == 0 else 0
        atoms = torch.randint(0, ELEMENTS, (core + solvent,), generator=gen)
        bonds = torch.tensor(bonds).T
        energy = self.table[atoms[bonds[0]], atoms[bonds[1]]].sum() / 4.0
        energy = energy + 0.3 * solvent
        return atoms, bonds, energy

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def collate(samples):
    atoms, edges, owner, energy = [], [], [], []
    offset = 0
    for k, (a, b, e) in enumerate(samples):
        atoms.append(a)
        edges.append(b + offset)
        owner.append(torch.full((len(a),), k))
        energy.append(e)
        if MENDED:
            offset += len(a)
        else:
            offset += int(b.max()) + 1
    edges = torch.cat(edges, dim=1)
    edges = torch.cat([edges, edges.flip(0)], dim=1)
    return torch.cat(atoms), edges, torch.cat(owner), torch.stack(energy)


class Layer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.message = nn.Sequential(nn.Linear(2 * d, d), nn.SiLU(), nn.Linear(d, d))
        self.update = nn.Sequential(nn.Linear(2 * d, d), nn.SiLU(), nn.Linear(d, d))
        self.norm = nn.LayerNorm(d)

    def forward(self, h, edges):
        src, dst = edges
        m = self.message(torch.cat([h[src], h[dst]], dim=-1))
        agg = torch.zeros_like(h).index_add_(0, dst, m)
        return self.norm(h + self.update(torch.cat([h, agg], dim=-1)))


class BondNet(nn.Module):
    def __init__(self, d=56, depth=3):
        super().__init__()
        self.embed = nn.Embedding(ELEMENTS, d)
        self.layers = nn.ModuleList(Layer(d) for _ in range(depth))
        self.readout = nn.Sequential(nn.Linear(d, d), nn.SiLU(), nn.Linear(d, 1))

    def forward(self, atoms, edges, owner, n):
        h = self.embed(atoms)
        for layer in self.layers:
            h = layer(h, edges)
        per_atom = self.readout(h).squeeze(-1)
        return torch.zeros(n).index_add_(0, owner, per_atom)


def evaluate(net, loader):
    net.eval()
    err, n = 0.0, 0
    with torch.no_grad():
        for atoms, edges, owner, y in loader:
            err += (net(atoms, edges, owner, len(y)) - y).abs().sum().item()
            n += len(y)
    net.train()
    return err / n


if __name__ == "__main__":
    torch.manual_seed(8)
    train = DataLoader(Molecules(3000, 1), batch_size=64, shuffle=True, collate_fn=collate, drop_last=True)
    test = DataLoader(Molecules(600, 2), batch_size=64, collate_fn=collate)
    net = BondNet()
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    sched = torch.optim.lr_scheduler.ExponentialLR(opt, 0.88)
    step = 0
    for epoch in range(14):
        total = 0.0
        for atoms, edges, owner, y in train:
            loss = (net(atoms, edges, owner, len(y)) - y).square().mean()
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 5.0)
            opt.step()
            step += 1
            total += loss.item()
        sched.step()
        print(
            f"epoch {epoch + 1:2d} step {step:4d} train mse {total / len(train):.4f} test mae {evaluate(net, test):.4f}"
        )
