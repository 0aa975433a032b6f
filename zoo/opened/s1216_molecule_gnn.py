# expect: sick
# symptom: the graph regressor trains smoothly but plateaus high from the first epoch on; the test error stays near two thirds of the standard deviation of the target whatever the number of epochs
# axis: data
# cause: the hand-written collate concatenates the bond indices of all graphs without adding each graph's node offset, so all edges of the batch connect the first few nodes of the batch
# says: (offset|increment|cumul|shift).{0,120}(edge|bond|node|graph|ind(ex|ices))|(edge|bond|ind(ex|ices)).{0,160}(offset|first graph|wrong (node|graph|atom)|same nodes|not (increment|shift)|incremented|collat|other graph|batch)
# onset_step: 0
# fix: add the running node count to each graph's edge index before concatenating
# mended: the collate adds the running node count to the bond indices
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(17)

N_TYPES = 5
CHARGE = np.array([-0.8, -0.3, 0.1, 0.5, 1.0])


class Molecule:
    """Random tree of atoms plus some ring closures; the property sums bond terms over neighbouring atoms."""

    def __init__(self, r):
        n = int(r.integers(8, 21))
        self.types = r.integers(0, N_TYPES, n)
        pairs = [(i, int(r.integers(max(0, i - 4), i))) for i in range(1, n)]
        for _ in range(int(r.integers(0, 4))):
            i, j = r.choice(n, 2, replace=False)
            pairs.append((int(i), int(j)))
        p = np.array(pairs)
        self.bonds = np.concatenate([p, p[:, ::-1]]).T.copy()
        self.order = np.tile(r.integers(1, 4, len(p)), 2)
        q = CHARGE[self.types]
        u, v = self.bonds
        e = (q[u] * q[v] * self.order).sum() / 2
        deg = np.bincount(u, minlength=n)
        self.y = float(2.0 * e + 0.4 * (q * deg).sum() + 0.3 * q.sum() + 0.05 * r.normal())


def collate(mols):
    x, bonds, order, seg, y, start = [], [], [], [], [], 0
    for g, m in enumerate(mols):
        x.append(m.types)
        bonds.append(m.bonds + start if MENDED else m.bonds)
        order.append(m.order)
        seg.append(np.full(len(m.types), g))
        y.append(m.y)
        start += len(m.types)

    def t(a, ax=0):
        return torch.from_numpy(np.concatenate(a, ax))

    return t(x), t(bonds, 1), t(order), t(seg), torch.tensor(y, dtype=torch.float32), len(mols)


class GINELayer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.bond = nn.Embedding(4, d)
        self.mlp = nn.Sequential(nn.Linear(d, 2 * d), nn.ReLU(), nn.Linear(2 * d, d))
        self.norm = nn.LayerNorm(d)
        self.eps = nn.Parameter(torch.zeros(1))

    def forward(self, h, bonds, order):
        src, dst = bonds
        msg = F.relu(h[src] + self.bond(order))
        agg = torch.zeros_like(h).index_add_(0, dst, msg)
        return h + self.norm(self.mlp((1 + self.eps) * h + agg))


class GNN(nn.Module):
    def __init__(self, d=64, layers=3):
        super().__init__()
        self.atom = nn.Embedding(N_TYPES, d)
        self.layers = nn.ModuleList(GINELayer(d) for _ in range(layers))
        self.readout = nn.Sequential(nn.Linear(d, d), nn.SiLU(), nn.Linear(d, 1))

    def forward(self, x, bonds, order, seg, n):
        h = self.atom(x)
        for l in self.layers:
            h = l(h, bonds, order)
        return torch.zeros(n).index_add_(0, seg, self.readout(h).squeeze(-1))


class Trainer:
    def __init__(self, train, test, lr=1e-3, batch=64, epochs=12):
        self.train, self.test, self.batch, self.epochs = train, test, batch, epochs
        ys = np.array([m.y for m in train])
        self.mu, self.sd = ys.mean(), ys.std()
        self.net = GNN()
        self.opt = torch.optim.Adam(self.net.parameters(), lr=lr)
        self.sched = torch.optim.lr_scheduler.CosineAnnealingLR(self.opt, epochs * (len(train) // batch), eta_min=1e-5)
        self.rng = np.random.default_rng(0)

    def loss(self, mols):
        x, bonds, order, seg, y, n = collate(mols)
        return F.smooth_l1_loss(self.net(x, bonds, order, seg, n), ((y - self.mu) / self.sd).float())

    @torch.no_grad()
    def mae(self):
        self.net.eval()
        err = []
        for i in range(0, len(self.test), self.batch):
            x, bonds, order, seg, y, n = collate(self.test[i : i + self.batch])
            err.append((self.net(x, bonds, order, seg, n) * self.sd + self.mu - y).abs())
        self.net.train()
        return torch.cat(err).mean().item()

    def fit(self):
        step = 0
        for epoch in range(self.epochs):
            order = self.rng.permutation(len(self.train))
            for i in range(0, len(order) - self.batch + 1, self.batch):
                loss = self.loss([self.train[j] for j in order[i : i + self.batch]])
                self.opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.net.parameters(), 5.0)
                self.opt.step()
                self.sched.step()
                if step % 10 == 0:
                    print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
                step += 1
            print(f"epoch {epoch} test MAE {self.mae():.3f} (target std {self.sd:.3f})", flush=True)


if __name__ == "__main__":
    r = np.random.default_rng(2)
    mols = [Molecule(r) for _ in range(3000)]
    Trainer(mols[:2560], mols[2560:]).fit()
