# expect: sick
# symptom: the loss falls normally, then from one step to the next it is NaN and stays NaN
# axis: model
# cause: symmetric degree normalisation D^-1/2 A D^-1/2 of a graph with an isolated atom (degree 0): 0^-0.5 = inf, inf*0 = NaN; only a few molecules (salts with a lone ion) have such an atom
# says: isolated|degree[- ]?(of )?(zero|0)|(zero|0)[- ]degree|deg\w*.{0,40}(pow|\*\*|inverse|rsqrt|-0\.5|inf|divi)|(pow|-0\.5|rsqrt|inverse|divi\w+|1/sqrt).{0,60}(deg|zero|neighbou?r)|no (bond|edge|neighbou?r)s?|adjacency normali[sz]|degree normali[sz]|lone (ion|atom|node)|disconnected (atom|node)
# onset_step: 104
# fix: clamp the degree to at least 1 before the power (or set inf entries to 0, or add self loops)
# mended: the degree is clamped to at least 1 before the -0.5 power
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(6)
rng = np.random.default_rng(11)

N_ATOMS, N_TYPES, N_MOL, BATCH, EPOCHS = 14, 6, 4800, 32, 3
CHARGE = np.array([0.1, -0.4, 0.3, -0.2, 0.6, -0.5], dtype=np.float32)
MASS = np.array([12.0, 14.0, 16.0, 19.0, 23.0, 35.5], dtype=np.float32) / 20.0


def make_molecule(salt):
    """random spanning tree plus a few ring bonds; a salt carries one counter-ion"""
    a = np.zeros((N_ATOMS, N_ATOMS), dtype=np.float32)
    n = N_ATOMS - 1 if salt else N_ATOMS
    for i in range(1, n):
        j = rng.integers(max(0, i - 4), i)
        a[i, j] = a[j, i] = 1
    for _ in range(rng.integers(0, 3)):
        i, j = rng.choice(n, 2, replace=False)
        a[i, j] = a[j, i] = 1
    types = rng.integers(0, N_TYPES - 1, N_ATOMS)
    if salt:
        types[-1] = N_TYPES - 1
    q, m = CHARGE[types], MASS[types]
    dipole = (a * np.abs(q[:, None] - q[None])).sum() / 2
    stiff = (a * (m[:, None] * m[None])).sum() / 2
    y = 0.6 * dipole + 0.25 * stiff + 0.4 * ((a.sum(1) == 3) * q).sum()
    return types, a, y


print("building molecules ...")
salts = set(rng.choice(N_MOL, 3, replace=False).tolist())
mols = [make_molecule(i in salts) for i in range(N_MOL)]
T = torch.tensor(np.stack([m[0] for m in mols]))
A = torch.tensor(np.stack([m[1] for m in mols]))
Y = torch.tensor(np.array([m[2] for m in mols], dtype=np.float32))
Y = (Y - Y.mean()) / Y.std()
VT, VA, VY = T[-320:], A[-320:], Y[-320:]
T, A, Y = T[:-320], A[:-320], Y[:-320]


def normalise(adj):
    deg = adj.sum(-1)
    if MENDED:
        deg = deg.clamp(min=1)
    d = deg.pow(-0.5)
    return d.unsqueeze(-1) * adj * d.unsqueeze(-2)


class GraphConv(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.self_lin = nn.Linear(dim, dim)
        self.nbr_lin = nn.Linear(dim, dim, bias=False)
        self.norm = nn.LayerNorm(dim)

    def forward(self, h, an):
        return h + F.relu(self.norm(self.self_lin(h) + an @ self.nbr_lin(h)))


class MolNet(nn.Module):
    def __init__(self, dim=64, layers=4):
        super().__init__()
        self.atom = nn.Embedding(N_TYPES, dim)
        self.convs = nn.ModuleList(GraphConv(dim) for _ in range(layers))
        self.read = nn.Sequential(nn.Linear(2 * dim, 64), nn.SiLU(), nn.Linear(64, 1))

    def forward(self, types, adj):
        an = normalise(adj)
        h = self.atom(types)
        for conv in self.convs:
            h = conv(h, an)
        return self.read(torch.cat([h.mean(1), h.amax(1)], -1)).squeeze(-1)


model = MolNet()
opt = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-4)
steps = EPOCHS * (len(Y) // BATCH)
sched = torch.optim.lr_scheduler.OneCycleLR(opt, 2e-3, total_steps=steps, pct_start=0.1)
step, t0 = 0, time.time()
for epoch in range(EPOCHS):
    model.train()
    order = torch.randperm(len(Y))
    for k in range(len(Y) // BATCH):
        idx = order[k * BATCH : (k + 1) * BATCH]
        loss = F.mse_loss(model(T[idx], A[idx]), Y[idx])
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        if step % 20 == 0:
            print(f"epoch {epoch} step {step:4d} loss {loss.item():.4f} lr {sched.get_last_lr()[0]:.2e}")
        step += 1
    model.eval()
    with torch.no_grad():
        vl = (model(VT, VA) - VY).abs().mean().item()
    print(f"== epoch {epoch} val mae {vl:.4f} ({time.time() - t0:.1f}s)")
