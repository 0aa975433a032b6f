# expect: sick
# symptom: the loss falls a little in the first epoch and then freezes at a poor value; nothing looks broken
# axis: schedule
# cause: the decay meant for once per epoch is stepped after each batch, so the learning rate vanishes early
# says: (sched|decay|step).*(per|each|every).(batch|step|iter)|(lr|rate|decay).*(too (fast|quick|early)|vanish)
# onset_step: 1
# fix: step the scheduler once per epoch instead of once per batch
# mended: the script applies that change if the environment has MENDED=1
"""Graph property classification (toy molecules) with a dense GCN."""

import os

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)

NODES, ATOMS = 14, 5


class Molecules(Dataset):
    """Random trees with extra bonds; the class tells how many bonds join atom kinds 0 and 1."""

    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.items = []
        while len(self.items) < n:
            kinds = torch.randint(0, ATOMS, (NODES,), generator=g)
            adj = torch.zeros(NODES, NODES)
            for v in range(1, NODES):
                u = torch.randint(0, v, (1,), generator=g).item()
                adj[u, v] = adj[v, u] = 1
            for u, v in torch.randint(0, NODES, (4, 2), generator=g).tolist():
                if u != v:
                    adj[u, v] = adj[v, u] = 1
            is0, is1 = (kinds == 0).float(), (kinds == 1).float()
            label = min(int(is0 @ adj @ is1), 3)
            if label == 0 and torch.rand(1, generator=g).item() < 0.4:
                continue
            self.items.append((F.one_hot(kinds, ATOMS).float(), adj, label))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


class GCNLayer(nn.Module):
    def __init__(self, d_in, d_out):
        super().__init__()
        self.own = nn.Linear(d_in, d_out)
        self.nbr = nn.Linear(d_in, d_out, bias=False)

    def forward(self, h, adj):
        return F.relu(self.own(h) + self.nbr(adj @ h) / 2.0)


class MoleculeNet(nn.Module):
    def __init__(self, width=48, classes=4):
        super().__init__()
        self.embed = nn.Linear(ATOMS, width)
        self.layers = nn.ModuleList(GCNLayer(width, width) for _ in range(3))
        self.readout = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, classes))

    def forward(self, x, adj):
        h = self.embed(x)
        for layer in self.layers:
            h = h + layer(h, adj)
        return self.readout(h.sum(1) / NODES**0.5)


def run_epoch(model, loader, opt, sched=None):
    model.train()
    total = 0.0
    for i, (x, adj, y) in enumerate(loader):
        loss = F.cross_entropy(model(x, adj), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if sched is not None:
            sched.step()
        total += loss.item()
        if i % 15 == 0:
            print(f"   batch {i:3d}  loss {loss.item():.4f}")
    return total / len(loader)


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    hits = [(model(x, adj).argmax(1) == y).float().mean().item() for x, adj, y in loader]
    return sum(hits) / len(hits)


def main():
    torch.manual_seed(31)
    train = DataLoader(Molecules(2400, 1), batch_size=64, shuffle=True, drop_last=True)
    val = DataLoader(Molecules(512, 2), batch_size=128)
    model = MoleculeNet()
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-4)
    sched = torch.optim.lr_scheduler.ExponentialLR(opt, gamma=0.85)
    for epoch in range(12):
        avg = run_epoch(model, train, opt, None if MENDED else sched)
        if MENDED:
            sched.step()
        print(f"epoch {epoch:2d}  train loss {avg:.4f}  val acc {accuracy(model, val):.3f}")


if __name__ == "__main__":
    main()
