# expect: sick
# symptom: energy and force losses fall for 180 steps, then all at once every loss is nan and stays so
# axis: model
# cause: The bond angle is computed with an unclamped acos, whose derivative is infinite at cos = -1, so the exactly collinear relaxed CO2 geometries that join the batches at step 181 give nan forces and gradients.
# says: (a(rc)?cos|angle|inverse cosine).*(clamp|clip|collinear|linear|straight|180|\bpi\b|±\s?1|-1|infinite|singular|unbounded|domain|boundary|blows|division|nan)|(collinear|linear|straight|180).*(a(rc)?cos|angle)
# onset_step: 181
# fix: clamp the cosine to [-1 + 1e-6, 1 - 1e-6] before acos
# mended: yes
"""Neural potential for triatomic molecules, fitted to energies and forces.

Reference data: Urey-Bradley style surface sampled thermally, later extended by
the relaxed minimum of every species (as is usual for fitting vibrations).
"""

import math
import os

import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(11)
rng = np.random.default_rng(11)

MENDED = os.environ.get("MENDED") == "1"
SPECIES = {  # name: (r0 left, r0 right, theta0, k_bond, k_angle)
    "H2O": (0.96, 0.96, 104.5, 6.0, 1.1),
    "SO2": (1.43, 1.43, 119.3, 8.0, 1.6),
    "O3": (1.28, 1.28, 116.8, 5.0, 1.3),
    "CO2": (1.16, 1.16, 180.0, 9.0, 0.9),
    "HOCl": (0.97, 1.69, 102.9, 4.0, 0.8),
}
NAMES = list(SPECIES)
TABLE = torch.tensor([SPECIES[n] for n in NAMES], dtype=torch.float32)


def surface(pos, kind):
    p = TABLE[kind]
    u, v = pos[:, 0] - pos[:, 1], pos[:, 2] - pos[:, 1]
    ru, rv = u.norm(dim=1), v.norm(dim=1)
    c = (u * v).sum(1) / (ru * rv)
    c0 = torch.cos(p[:, 2] * math.pi / 180)
    return (
        p[:, 3] * ((ru - p[:, 0]) ** 2 + (rv - p[:, 1]) ** 2)
        + p[:, 4] * (c - c0) ** 2
        + 0.4 * (ru - p[:, 0]) * (rv - p[:, 1])
    )


def minimum(kind):
    r1, r2, th = SPECIES[NAMES[kind]][:3]
    th = math.radians(th)
    return np.array([[r1, 0, 0], [0, 0, 0], [r2 * math.cos(th), r2 * math.sin(th), 0]])


def rotation():
    q, r = np.linalg.qr(rng.normal(size=(3, 3)))
    return q * np.sign(np.diag(r))


def label(pos, kind):
    pos = torch.tensor(np.stack(pos), dtype=torch.float32, requires_grad=True)
    kind = torch.tensor(kind)
    e = surface(pos, kind)
    f = -torch.autograd.grad(e.sum(), pos)[0]
    return pos.detach(), kind, e.detach(), f


def thermal(n):
    kinds = rng.integers(0, len(NAMES), n)
    return label([(minimum(k) + rng.normal(0, 0.09, (3, 3))) @ rotation() for k in kinds], kinds)


def relaxed(n):
    kinds = rng.integers(0, len(NAMES), n)
    return label([minimum(k) @ rotation() for k in kinds], kinds)


class Potential(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.kind = nn.Embedding(len(NAMES), 16)
        self.net = nn.Sequential(
            nn.Linear(16 + 4, width),
            nn.SiLU(),
            nn.Linear(width, width),
            nn.SiLU(),
            nn.Linear(width, width),
            nn.SiLU(),
            nn.Linear(width, 1),
        )

    def descriptors(self, pos):
        u, v = pos[:, 0] - pos[:, 1], pos[:, 2] - pos[:, 1]
        ru, rv = u.norm(dim=1), v.norm(dim=1)
        cosine = (u * v).sum(1) / (ru * rv)
        if MENDED:
            cosine = cosine.clamp(-1 + 1e-6, 1 - 1e-6)
        theta = torch.acos(cosine)
        return torch.stack([ru, rv, theta, (pos[:, 0] - pos[:, 2]).norm(dim=1)], 1)

    def forward(self, pos, kind):
        pos = pos.requires_grad_(True)
        e = self.net(torch.cat([self.kind(kind), self.descriptors(pos)], 1)).squeeze(1)
        f = -torch.autograd.grad(e.sum(), pos, create_graph=True)[0]
        return e, f


def main():
    md = thermal(6000)
    minima = relaxed(400)
    test = thermal(500)
    net = Potential()
    opt = torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=1e-6)
    steps = 900
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, steps)
    for step in range(1, steps + 1):
        i = torch.from_numpy(rng.integers(0, 6000, 128))
        batch = [t[i] for t in md]
        if step > 180:
            j = torch.from_numpy(rng.integers(0, 400, 16))
            batch = [torch.cat([a, b[j]]) for a, b in zip(batch, minima)]
        pos, kind, e_ref, f_ref = batch
        e, f = net(pos, kind)
        e_loss = nn.functional.mse_loss(e, e_ref)
        f_loss = nn.functional.mse_loss(f, f_ref)
        loss = e_loss + 0.3 * f_loss
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 5.0)
        opt.step()
        sched.step()
        if step % 30 == 0 or step == 1:
            print(f"{step:4d}  energy {e_loss.item():.5f}  force {f_loss.item():.5f}")
    e, f = net(test[0].clone(), test[1])
    print(
        f"test: energy mae {(e - test[2]).abs().mean().item():.4f} "
        f"force mae {(f - test[3]).abs().mean().item():.4f} "
        f"(spread of forces {test[3].std().item():.3f})"
    )


if __name__ == "__main__":
    main()
