# expect: sick
# symptom: aligned RMSD falls steadily, then in the middle of training all weights become NaN in one step and the next forward pass dies with a LinAlgError about non-finite values
# axis: loss
# cause: the Kabsch alignment is differentiated through the SVD, whose backward divides by differences of (squared) singular values; the exactly linear molecules that enter at step 221 give a rank-1 covariance with repeated zero singular values, so the gradient is NaN
# says: (svd|kabsch|singular value|rotation|alignment|procrustes|covariance).*(degenerat|repeated|equal|zero|rank|collinear|co-linear|linear (molecul|conformer)|backward|gradient|differentiat|detach|NaN)|(linear|collinear|degenerat|rank).*(svd|kabsch|singular value|procrustes)
# onset_step: 221
# fix: compute the rotation from the detached covariance (no gradient through the SVD)
# mended: yes
"""Predict small-molecule conformers from internal descriptors.

Coordinates come in the inertial frame as the geometry package writes them; the
loss is the mean squared deviation after optimal superposition.
"""

import math
import os
import random
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"
N_ATOMS = 7


@dataclass
class Config:
    seed: int = 11
    batch: int = 64
    steps: int = 600
    lr: float = 1.5e-3
    second_release: int = 220
    n_first: int = 4000
    n_second: int = 600


def grow_chain(lengths, angles, dihedrals):
    """NeRF-style chain growth from internal coordinates."""
    pts = [np.zeros(3), np.array([lengths[0], 0.0, 0.0])]
    a = angles[0]
    pts.append(pts[1] + lengths[1] * np.array([-math.cos(a), math.sin(a), 0.0]))
    for i in range(3, N_ATOMS):
        b, c = pts[i - 2], pts[i - 1]
        bc = (c - b) / np.linalg.norm(c - b)
        n = np.cross(b - pts[i - 3], bc)
        n /= np.linalg.norm(n)
        m = np.cross(n, bc)
        a, d = angles[i - 2], dihedrals[i - 3]
        local = lengths[i - 1] * np.array([-math.cos(a), math.sin(a) * math.cos(d), math.sin(a) * math.sin(d)])
        pts.append(c + local[0] * bc + local[1] * m + local[2] * n)
    return np.array(pts)


def inertial_frame(x):
    x = x - x.mean(0)
    _, _, vt = np.linalg.svd(x, full_matrices=False)
    return x @ vt.T


def make_bent(rng, n):
    feats, coords = [], []
    for _ in range(n):
        z = rng.normal(size=6)
        lengths = 1.3 + 0.15 * np.tanh(z[0] + np.arange(6) * 0.3 * z[1])
        angles = 1.9 + 0.2 * np.tanh(z[2] * np.cos(np.arange(5)) + z[3])
        dihedrals = math.pi * (0.6 + 0.25 * np.tanh(z[4] + z[5] * np.sin(np.arange(4))))
        feats.append(np.concatenate([z, [0.0]]))
        coords.append(inertial_frame(grow_chain(lengths, angles, dihedrals)))
    return np.array(feats), np.array(coords)


def make_cumulenes(rng, n):
    feats, coords = [], []
    for _ in range(n):
        z = rng.normal(size=6)
        lengths = 1.25 + 0.1 * np.tanh(z[0] + np.arange(6) * 0.3 * z[1])
        x = np.concatenate([[0.0], np.cumsum(lengths)])
        x = x - x.mean()
        coords.append(np.stack([x, np.zeros_like(x), np.zeros_like(x)], 1))
        feats.append(np.concatenate([z, [1.0]]))
    return np.array(feats), np.array(coords)


class ConformerNet(nn.Module):
    def __init__(self, d=7, width=160):
        super().__init__()
        self.inp = nn.Linear(d, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width))
            for _ in range(3)
        )
        self.out = nn.Linear(width, N_ATOMS * 3)

    def forward(self, f):
        h = self.inp(f)
        for blk in self.blocks:
            h = h + blk(h)
        xyz = self.out(h).view(-1, N_ATOMS, 3)
        return xyz - xyz.mean(1, keepdim=True)


def kabsch_msd(pred, ref):
    cov = pred.transpose(1, 2) @ ref
    u, s, vh = torch.linalg.svd(cov.detach() if MENDED else cov)
    sign = torch.sign(torch.det(u @ vh).detach())
    flip = torch.ones(len(pred), 3)
    flip[:, 2] = sign
    rot = u @ torch.diag_embed(flip) @ vh
    return ((pred @ rot - ref) ** 2).sum(-1).mean(-1)


def main():
    cfg = Config()
    random.seed(cfg.seed)
    torch.manual_seed(cfg.seed)
    rng = np.random.default_rng(cfg.seed)
    first = make_bent(rng, cfg.n_first)
    second = make_cumulenes(rng, cfg.n_second)
    as_t = lambda pair: tuple(torch.tensor(p, dtype=torch.float32) for p in pair)
    (fa, xa), (fb, xb) = as_t(first), as_t(second)
    f_all, x_all = torch.cat([fa, fb]), torch.cat([xa, xb])
    val_f, val_x = as_t(make_bent(np.random.default_rng(99), 400))

    net = ConformerNet()
    opt = torch.optim.AdamW(net.parameters(), lr=cfg.lr, weight_decay=1e-4)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, cfg.steps)
    for step in range(1, cfg.steps + 1):
        pool = len(fa) if step <= cfg.second_release else len(f_all)
        idx = torch.randint(0, pool, (cfg.batch,))
        loss = kabsch_msd(net(f_all[idx]), x_all[idx]).mean()
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 5.0)
        opt.step()
        sched.step()
        if step % 30 == 0 or step == 1:
            with torch.no_grad():
                pred = net(val_f)
                val = kabsch_msd(pred, val_x).mean().sqrt().item() if torch.isfinite(pred).all() else float("nan")
            print(f"step {step:4d}  pool {pool}  msd {loss.item():.4f}  val rmsd {val:.4f}", flush=True)


if __name__ == "__main__":
    main()
