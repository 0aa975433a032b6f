# expect: sick
# symptom: first printed loss is fine, from the second step on the loss is nan and every weight is nan
# axis: model
# cause: the pair distance is sqrt(sum of squares) over all pairs including a particle with itself; at zero distance the derivative of sqrt is infinite, and 0*inf gives NaN gradients as soon as the coordinates depend on weights (second layer)
# says: (sqrt|square.?root|distance|pairwise|self.?(pair|edge|loop)|diagonal).{0,140}(zero|\b0\b|eps|self|diagonal|infinite|\binf\b|gradient|derivative|backward)|(zero|self|diagonal|eps|infinite|undefined).{0,80}(sqrt|square.?root|distance)
# onset_step: 1
# fix: add a small eps inside the square root (or mask the diagonal before the sqrt, or feed squared distances)
# mended: sqrt(d2 + 1e-8) instead of sqrt(d2)
"""Equivariant graph network that predicts where charged particles are a moment later."""

import os
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(11)

N, STEPS, BATCH, LR = 7, 320, 48, 1e-3


def simulate(n_scenes, gen):
    """Softened Coulomb system, integrated with small Euler steps."""
    x0 = torch.randn(n_scenes, N, 3, generator=gen) * 1.5
    v0 = torch.randn(n_scenes, N, 3, generator=gen) * 0.5
    q = torch.where(torch.rand(n_scenes, N, 1, generator=gen) < 0.5, 1.0, -1.0)
    x, v = x0.clone(), v0.clone()
    for _ in range(50):
        d = x[:, :, None] - x[:, None]
        r2 = (d**2).sum(-1, keepdim=True) + 0.3
        f = (q[:, :, None] * q[:, None] * d / r2**1.5).sum(2)
        v = v + 0.02 * f
        x = x + 0.02 * v
    return x0, v0, q, x


class EGNNLayer(nn.Module):
    def __init__(self, h):
        super().__init__()
        self.edge = nn.Sequential(nn.Linear(2 * h + 1, h), nn.SiLU(), nn.Linear(h, h), nn.SiLU())
        self.node = nn.Sequential(nn.Linear(2 * h, h), nn.SiLU(), nn.Linear(h, h))
        self.coord = nn.Sequential(nn.Linear(h, h), nn.SiLU(), nn.Linear(h, 1, bias=False))
        self.vel = nn.Sequential(nn.Linear(h, h), nn.SiLU(), nn.Linear(h, 1))
        nn.init.xavier_uniform_(self.coord[-1].weight, gain=0.01)

    def forward(self, h, x, v):
        diff = x[:, :, None] - x[:, None]  # B N N 3
        d2 = (diff**2).sum(-1, keepdim=True)
        dist = torch.sqrt(d2 + 1e-8) if MENDED else torch.sqrt(d2)
        n = h.shape[1]
        hi = h[:, :, None].expand(-1, -1, n, -1)
        hj = h[:, None].expand(-1, n, -1, -1)
        m = self.edge(torch.cat([hi, hj, dist], -1))
        x = x + (diff / (dist + 1.0) * self.coord(m)).mean(2) + self.vel(h) * v
        h = h + self.node(torch.cat([h, m.mean(2)], -1))
        return h, x


class EGNN(nn.Module):
    def __init__(self, h=48, depth=3):
        super().__init__()
        self.embed = nn.Linear(2, h)
        self.layers = nn.ModuleList(EGNNLayer(h) for _ in range(depth))

    def forward(self, x, v, q):
        h = self.embed(torch.cat([q, v.norm(dim=-1, keepdim=True)], -1))
        for layer in self.layers:
            h, x = layer(h, x, v)
        return x


def main():
    gen = torch.Generator().manual_seed(5)
    x, v, q, y = simulate(3000, gen)
    tx, tv, tq, ty = simulate(400, gen)
    still = F.mse_loss(tx, ty).item()
    linear = F.mse_loss(tx + tv, ty).item()
    print(f"baselines on test: stand still {still:.4f}  straight line {linear:.4f}")
    model = EGNN()
    opt = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=1e-6)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, STEPS)
    t0 = time.time()
    for step in range(STEPS):
        idx = torch.randint(0, len(x), (BATCH,), generator=gen)
        pred = model(x[idx], v[idx], q[idx])
        loss = F.mse_loss(pred, y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step < 3 or step % 25 == 0 or step == STEPS - 1:
            print(f"step {step:4d} loss {loss.item():.5f} lr {sched.get_last_lr()[0]:.2e}", flush=True)
    model.eval()
    with torch.no_grad():
        test = F.mse_loss(model(tx, tv, tq), ty).item()
    print(f"test mse {test:.5f}   {time.time() - t0:.1f}s")


if __name__ == "__main__":
    main()
