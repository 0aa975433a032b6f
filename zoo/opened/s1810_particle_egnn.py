# expect: sick
# symptom: the first loss is normal, then every loss from the second step on is nan
# axis: model
# cause: the pairwise distance in the EGNN layer is sqrt of the squared distance, and the self pairs (diagonal) have distance exactly 0, where the gradient of sqrt is infinite; 0 * inf gives NaN gradients through the updated coordinates
# says: (sqrt|square.?root|\bnorm\(|\bnorm\b|distances?\b|\bdist\b).{0,160}(zero|\b0\b|0\.0|\bself|diagonal|infinite|\binf\b|\beps|singular|undefined)|(zero|\bself\b|self.?(pair|loop|edge|distance)|diagonal|infinite|\beps\w*|singular|undefined).{0,160}(sqrt|square.?root|distances?\b|\bdist\b)
# onset_step: 1
# fix: add a small eps below the root (or use squared distances, or leave the self pairs out)
# mended: adds 1e-8 to the squared distance before the root
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(11)
rng = np.random.default_rng(11)

N_PART = 8
HORIZON = 20
BATCH = 32
STEPS = 320


def simulate(n_systems):
    """Charged particles with a soft Coulomb force and a weak trap."""
    x = rng.normal(0, 1.2, (n_systems, N_PART, 3)).astype(np.float32)
    v = rng.normal(0, 0.4, (n_systems, N_PART, 3)).astype(np.float32)
    q = rng.choice([-1.0, 1.0], (n_systems, N_PART, 1)).astype(np.float32)
    x0, v0 = x.copy(), v.copy()
    dt = 0.03
    for _ in range(HORIZON):
        diff = x[:, :, None] - x[:, None]
        r2 = (diff**2).sum(-1, keepdims=True) + 0.3
        force = (q[:, :, None] * q[:, None] * diff / r2**1.5).sum(2) - 0.2 * x
        v = v + dt * force
        x = x + dt * v
    return [torch.from_numpy(a.astype(np.float32)) for a in (x0, v0, q, x)]


class EGCL(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.edge = nn.Sequential(nn.Linear(2 * dim + 2, dim), nn.SiLU(), nn.Linear(dim, dim), nn.SiLU())
        self.node = nn.Sequential(nn.Linear(2 * dim, dim), nn.SiLU(), nn.Linear(dim, dim))
        self.coord = nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, 1, bias=False))
        self.vel = nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, 1))
        nn.init.xavier_uniform_(self.coord[-1].weight, gain=0.01)

    def forward(self, h, x, v, qq):
        b, n, d = h.shape
        diff = x[:, :, None] - x[:, None]
        d2 = (diff**2).sum(-1, keepdim=True)
        if MENDED:
            d2 = d2 + 1e-8
        dist = d2.sqrt()
        hi = h[:, :, None].expand(b, n, n, d)
        hj = h[:, None].expand(b, n, n, d)
        m = self.edge(torch.cat([hi, hj, dist, qq], -1))
        shift = (diff / (dist + 1.0) * self.coord(m)).mean(2)
        x = x + self.vel(h) * v + shift
        h = h + self.node(torch.cat([h, m.sum(2) / n], -1))
        return h, x


class EGNN(nn.Module):
    def __init__(self, dim=48, layers=3):
        super().__init__()
        self.inp = nn.Linear(2, dim)
        self.layers = nn.ModuleList(EGCL(dim) for _ in range(layers))

    def forward(self, x, v, q):
        speed = v.pow(2).sum(-1, keepdim=True)
        h = self.inp(torch.cat([q, speed], -1))
        qq = q[:, :, None] * q[:, None]
        for layer in self.layers:
            h, x = layer(h, x, v, qq)
        return x


def main():
    train = simulate(1500)
    valid = simulate(200)
    model = EGNN()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-8)
    gen = torch.Generator().manual_seed(5)
    t0 = time.time()
    print(
        "params",
        sum(p.numel() for p in model.parameters()),
        "no-motion mse %.4f" % F.mse_loss(valid[0], valid[3]).item(),
    )
    for step in range(STEPS):
        idx = torch.randint(0, len(train[0]), (BATCH,), generator=gen)
        x, v, q, y = [a[idx] for a in train]
        pred = model(x, v, q)
        loss = F.mse_loss(pred, y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if step < 5 or step % 25 == 0:
            print(f"step {step:4d} loss {loss.item():.5f} ({time.time() - t0:.1f}s)")
    with torch.no_grad():
        val = F.mse_loss(model(*valid[:3]), valid[3]).item()
    print(f"valid mse {val:.5f}")


if __name__ == "__main__":
    main()
