# expect: sick
# symptom: the validation error stalls far above what a message passing network of this size should reach, nothing explodes
# axis: model
# cause: the message passing blocks are kept in a plain Python list instead of nn.ModuleList, so their parameters are not registered, model.parameters() does not return them and the optimizer never updates them (they stay at random initialisation)
# says: (?=.*(block|layer|conv|message|sub-?modul|interaction|modules))((.*(plain|python|ordinary|regular|bare|normal|builtin|built-in|simple)[\w\s-]{0,12}list)|(.*module_?list)|(.*(not|never|un|n't|isn)[\w\s-]{0,12}register)|(.*(not|never|missing|absent|n't|omit|left out|invisible|exclud)[^.]{0,60}(parameters\(\)|optimi[sz]er)))
# onset_step: 1
# fix: wrap the list of blocks in nn.ModuleList
# mended: yes
"""Property regression on small random molecules with a gated message passing network.

Graphs are padded to a fixed number of atoms and batched densely.
"""

import os
import math
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"

N_ATOM_TYPES = 6
MAX_ATOMS = 14
CHI = np.array([2.2, 2.55, 3.04, 3.44, 3.98, 2.58])
SIZE = np.array([0.3, 0.77, 0.75, 0.73, 0.71, 1.02])


def random_molecule(rng):
    n = rng.integers(7, MAX_ATOMS + 1)
    z = rng.choice(N_ATOM_TYPES, size=n, p=[0.1, 0.4, 0.17, 0.17, 0.08, 0.08])
    adj = np.zeros((MAX_ATOMS, MAX_ATOMS), dtype=np.float32)
    for i in range(1, n):
        j = rng.integers(max(0, i - 4), i)
        adj[i, j] = adj[j, i] = 1.0
    for _ in range(rng.integers(0, 3)):
        i, j = rng.choice(n, size=2, replace=False)
        adj[i, j] = adj[j, i] = 1.0
    return z, adj, n


def energy(z, adj, n):
    a = adj[:n, :n]
    chi, size = CHI[z], SIZE[z]
    charge = (a * np.tanh(chi[None, :] - chi[:, None])).sum(1)
    bond = (a * charge[:, None] * charge[None, :]).sum() / 2
    two = ((a @ a) > 0).astype(float) * (1 - np.eye(n)) * (1 - a)
    steric = (two * size[:, None] * size[None, :]).sum() / 2
    return 1.5 * bond + 0.35 * steric + 0.4 * np.abs(charge).sum()


def build(n_graphs, seed):
    rng = np.random.default_rng(seed)
    zs = np.full((n_graphs, MAX_ATOMS), N_ATOM_TYPES, dtype=np.int64)
    adjs = np.zeros((n_graphs, MAX_ATOMS, MAX_ATOMS), dtype=np.float32)
    ys = np.zeros(n_graphs, dtype=np.float32)
    for g in range(n_graphs):
        z, adj, n = random_molecule(rng)
        zs[g, :n], adjs[g], ys[g] = z, adj, energy(z, adj, n)
    return torch.from_numpy(zs), torch.from_numpy(adjs), torch.from_numpy(ys)


class MessageBlock(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.src = nn.Linear(dim, dim)
        self.dst = nn.Linear(dim, dim)
        self.out = nn.Sequential(nn.Linear(2 * dim, dim), nn.SiLU(), nn.Linear(dim, dim))
        self.norm = nn.LayerNorm(dim)

    def forward(self, h, adj):
        pair = F.silu(self.src(h).unsqueeze(1) + self.dst(h).unsqueeze(2))
        m = (adj.unsqueeze(-1) * pair).sum(2)
        return self.norm(h + self.out(torch.cat([h, m], dim=-1)))


class MolNet(nn.Module):
    def __init__(self, dim=20, depth=4):
        super().__init__()
        self.embed = nn.Embedding(N_ATOM_TYPES + 1, dim, padding_idx=N_ATOM_TYPES)
        blocks = [MessageBlock(dim) for _ in range(depth)]
        self.blocks = nn.ModuleList(blocks) if MENDED else blocks
        self.readout = nn.Sequential(nn.Linear(dim, 32), nn.SiLU(), nn.Linear(32, 1))

    def forward(self, z, adj):
        h = self.embed(z)
        for block in self.blocks:
            h = block(h, adj)
        atom = self.readout(h).squeeze(-1)
        return (atom * (z != N_ATOM_TYPES)).sum(1)


def main():
    torch.manual_seed(11)
    train, val = build(3000, 1), build(500, 2)
    mu, sd = train[2].mean(), train[2].std()
    net = MolNet()
    epochs, bs = 14, 64
    per_epoch = math.ceil(len(train[2]) / bs)
    opt = torch.optim.AdamW(net.parameters(), lr=4e-3, weight_decay=1e-4)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, 4e-3, total_steps=epochs * per_epoch)
    t0, step = time.time(), 0
    for epoch in range(epochs):
        net.train()
        order = torch.randperm(len(train[2]))
        for k in range(0, len(order), bs):
            i = order[k : k + bs]
            target = (train[2][i] - mu) / sd
            loss = F.smooth_l1_loss(net(train[0][i], train[1][i]), target)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 2.0)
            opt.step()
            sched.step()
            step += 1
            if step % 60 == 0:
                print(f"step {step:4d}  loss {loss.item():.4f}  lr {sched.get_last_lr()[0]:.2e}")
        net.eval()
        with torch.no_grad():
            pred = net(val[0], val[1]) * sd + mu
        mae = (pred - val[2]).abs().mean().item()
        print(f"epoch {epoch:2d}  val MAE {mae:.4f}  (target sd {val[2].std():.3f})  {time.time() - t0:.1f}s")


if __name__ == "__main__":
    main()
