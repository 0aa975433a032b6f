# expect: sick
# symptom: training and validation error fall a little in the first steps and then stay on a plateau far above what the model can reach; nothing explodes
# axis: data
# cause: when graphs are collated into one batch the edge indices are not shifted by the cumulative node count, so every graph's edges connect the nodes of the first graph(s) and the messages are wrong
# says: (edge|node|index|indices|graph|atom|bond).{0,160}(offset|shift|increment|cumulative|cumsum|running (total|count)|re-?index|re-?number|first (graph|molecule)|first few|wrong (graph|node|molecule|atom))|(offset|shift|increment|cumulative|cumsum|re-?index).{0,160}(edge|node|index|indices|graph|atom|bond)|(edge|bond).{0,100}(local|per-graph|per-molecule).{0,60}(index|indices|number|ind)|(bond|edge)s? (index|indices)?.{0,60}(point|refer|connect|attach).{0,60}(wrong|first)
# onset_step: 1
# fix: add the running node count to each graph's edge indices in the collate function
# mended: yes
"""Message passing network for molecular-like graphs, regression of a bond energy."""

import argparse
import os
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split

torch.set_num_threads(1)


@dataclass
class Mol:
    types: torch.Tensor  # [n]
    bonds: torch.Tensor  # [2, e], both directions
    energy: float


class BondDataset(Dataset):
    ELEMENTS = 6

    def __init__(self, size, seed):
        r = np.random.default_rng(seed)
        pair = r.normal(size=(self.ELEMENTS, self.ELEMENTS))
        self.pair = (pair + pair.T) / 2
        self.mols = [self._make(r) for _ in range(size)]
        e = np.array([m.energy for m in self.mols])
        self.mu, self.sd = e.mean(), e.std()

    def _make(self, r):
        n = int(r.integers(8, 20))
        types = r.integers(0, self.ELEMENTS, n)
        bonds = {(int(r.integers(0, i)), i) for i in range(1, n)}
        for _ in range(int(r.integers(0, 5))):
            i, j = sorted(r.choice(n, 2, replace=False).tolist())
            bonds.add((i, j))
        src, dst = zip(*bonds)
        src, dst = np.array(src), np.array(dst)
        e = float(self.pair[types[src], types[dst]].sum() + 0.05 * r.normal())
        both = np.stack([np.r_[src, dst], np.r_[dst, src]])
        return Mol(torch.from_numpy(types), torch.from_numpy(both), e)

    def __len__(self):
        return len(self.mols)

    def __getitem__(self, i):
        m = self.mols[i]
        return m, (m.energy - self.mu) / self.sd


class Collate:
    def __init__(self, running):
        self.running = running

    def __call__(self, items):
        types, bonds, owner, ys = [], [], [], []
        total = 0
        for k, (mol, y) in enumerate(items):
            n = len(mol.types)
            types.append(mol.types)
            bonds.append(mol.bonds + total)
            owner.append(torch.full((n,), k))
            ys.append(y)
            if self.running:
                total += n
        return (torch.cat(types), torch.cat(bonds, 1), torch.cat(owner), torch.tensor(ys, dtype=torch.float32))


class GINLayer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.msg = nn.Sequential(nn.Linear(2 * d, d), nn.SiLU())
        self.upd = nn.Sequential(nn.Linear(2 * d, d), nn.SiLU(), nn.Linear(d, d))
        self.norm = nn.LayerNorm(d)

    def forward(self, h, bonds):
        src, dst = bonds
        m = self.msg(torch.cat([h[src], h[dst]], 1))
        agg = torch.zeros_like(h).index_add_(0, dst, m)
        return h + self.upd(torch.cat([h, agg], 1))


class EnergyNet(nn.Module):
    def __init__(self, n_types, d=64, depth=3):
        super().__init__()
        self.embed = nn.Embedding(n_types, d)
        self.layers = nn.ModuleList(GINLayer(d) for _ in range(depth))
        self.atomwise = nn.Sequential(nn.Linear(d, d), nn.SiLU(), nn.Linear(d, 1))

    def forward(self, types, bonds, owner, n_graphs):
        h = self.embed(types)
        for layer in self.layers:
            h = layer(h, bonds)
        e = self.atomwise(h).squeeze(1)
        return torch.zeros(n_graphs).index_add_(0, owner, e) / 5.0


def run_epoch(net, loader, opt=None, counter=0, log_every=25):
    sq, n = 0.0, 0
    for types, bonds, owner, y in loader:
        with torch.set_grad_enabled(opt is not None):
            loss = nn.functional.mse_loss(net(types, bonds, owner, len(y)), y)
        if opt is not None:
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 5.0)
            opt.step()
            counter += 1
            if counter % log_every == 0:
                print(f"  step {counter:4d} mse {loss.item():.4f}")
        sq += loss.item() * len(y)
        n += len(y)
    return sq / n, counter


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=10)
    ap.add_argument("--lr", type=float, default=2e-3)
    args = ap.parse_args()
    torch.manual_seed(11)
    full = BondDataset(2400, seed=4)
    train, val = random_split(full, [2000, 400])
    collate = Collate(running=os.environ.get("MENDED") == "1")
    train_loader = DataLoader(train, 32, shuffle=True, collate_fn=collate, drop_last=True)
    val_loader = DataLoader(val, 100, collate_fn=collate)
    net = EnergyNet(full.ELEMENTS)
    opt = torch.optim.Adam(net.parameters(), lr=args.lr)
    step = 0
    for epoch in range(1, args.epochs + 1):
        tr, step = run_epoch(net, train_loader, opt, step)
        with torch.no_grad():
            va, _ = run_epoch(net, val_loader)
        print(f"epoch {epoch} train mse {tr:.4f} val mse {va:.4f}")


if __name__ == "__main__":
    main()
