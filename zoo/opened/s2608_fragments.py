# expect: sick
# symptom: aligned RMSD loss falls well for 200 steps, then weights turn nan in the first steps after the second data shard joins and the next forward dies in linalg.svd (non-finite input)
# axis: loss
# cause: the Kabsch alignment is differentiated through the SVD, whose backward divides by differences of squared singular values; linear (collinear) fragments in the second shard make the covariance rank one with repeated zero singular values, so the gradient is nan
# says: (svd|kabsch|singular|superpos|rotation|alignment).{0,300}(degenera|repeated|coincid|(equal|identical|duplicate|zero) singular|rank.?(one|1|deficien)|collinear|colinear|linear (fragment|molecul|chain)|detach|differentiated through|backprop\w* through|backward|ill.?(defined|conditioned|posed)|svd.{0,20}gradient)|(collinear|colinear|rank.?(one|1|deficien)|degenera|linear (fragment|molecul)|differentiat\w+|gradient|backward|backprop\w*).{0,200}(svd|singular|kabsch|superpos)
# onset_step: 201
# fix: compute the rotation without gradient (R.detach()); at the optimum the derivative with respect to R vanishes anyway
# mended: yes
"""Predict 3-D coordinates of five-atom chain fragments from internal descriptors.

Coordinates are only defined up to a rigid motion, so prediction and reference are superposed first.
"""

import math
import os
import time

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(3)
N_ATOMS = 5


def build_chain(lengths, angles, torsions):
    """Place atoms one by one (NeRF style); all inputs batched, float64."""
    B = lengths.shape[0]
    pts = [torch.zeros(B, 3, dtype=lengths.dtype)]
    direction = torch.tensor([1.0, 0, 0], dtype=lengths.dtype).expand(B, 3).clone()
    normal = torch.tensor([0, 0, 1.0], dtype=lengths.dtype).expand(B, 3).clone()
    pts.append(pts[0] + lengths[:, :1] * direction)
    for k in range(3):
        if k > 0:
            tau = torsions[:, k - 1 : k]
            normal = normal * tau.cos() + torch.cross(direction, normal, dim=-1) * tau.sin()
        bend = angles[:, k : k + 1]
        perp = torch.cross(normal, direction, dim=-1)
        direction = direction * bend.cos() + perp * bend.sin()
        pts.append(pts[-1] + lengths[:, k + 1 : k + 2] * direction)
    return torch.stack(pts, 1)


def make_shard(n, gen, alkynes=0):
    lengths = 1.2 + 0.4 * torch.rand(n, 4, generator=gen, dtype=torch.float64)
    angles = math.radians(70) + math.radians(20) * torch.randn(n, 3, generator=gen, dtype=torch.float64)
    torsions = 2 * math.pi * torch.rand(n, 2, generator=gen, dtype=torch.float64) - math.pi
    if alkynes:
        angles[:alkynes] = 0.0
        torsions[:alkynes] = 0.0
    xyz = build_chain(lengths, angles, torsions)
    feats = torch.cat([lengths - 1.4, angles.cos(), angles.sin(), torsions.cos(), torsions.sin()], 1)
    xyz = xyz - xyz.mean(1, keepdim=True)
    return feats.float(), xyz.float()


class Net(nn.Module):
    def __init__(self, d_in=14, width=160):
        super().__init__()
        self.inp = nn.Linear(d_in, width)
        self.mid = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
            for _ in range(3)
        )
        self.out = nn.Linear(width, N_ATOMS * 3)

    def forward(self, f):
        h = self.inp(f)
        for m in self.mid:
            h = h + m(h)
        p = self.out(h).view(-1, N_ATOMS, 3)
        return p - p.mean(1, keepdim=True)


def superpose(p, q):
    """Rotation taking p onto q, proper rotations only."""
    h = p.transpose(1, 2) @ q
    u, s, vt = torch.linalg.svd(h)
    d = torch.sign(torch.det(u @ vt))
    flip = torch.diag_embed(torch.stack([torch.ones_like(d), torch.ones_like(d), d], -1))
    rot = u @ flip @ vt
    if os.environ.get("MENDED") == "1":
        rot = rot.detach()
    return p @ rot


def msd(p, q):
    return (superpose(p, q) - q).pow(2).sum(-1).mean()


def main():
    gen = torch.Generator().manual_seed(17)
    organic = make_shard(6000, gen)
    unsaturated = make_shard(2000, gen, alkynes=160)
    test_f, test_x = make_shard(500, gen)

    net = Net()
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
    total = 900
    lr_schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, total, eta_min=5e-5)
    t0 = time.time()
    running = 0.0
    for it in range(1, total + 1):
        if it == 201:
            organic = tuple(torch.cat(z) for z in zip(organic, unsaturated))
            print("shard 2 attached,", len(organic[0]), "fragments")
        pick = torch.randint(len(organic[0]), (320,), generator=gen)
        f, x = organic[0][pick], organic[1][pick]
        f = f + 0.002 * torch.randn(f.shape, generator=gen)
        loss = msd(net(f), x)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 2.0)
        optimizer.step()
        lr_schedule.step()
        running += loss.item()
        if it % 50 == 0:
            print(f"it {it} msd {running / 50:.4f} A^2  [{time.time() - t0:.1f}s]")
            running = 0.0
    with torch.no_grad():
        try:
            print(f"test rmsd {msd(net(test_f), test_x).sqrt().item():.4f} A")
        except torch.linalg.LinAlgError as e:
            print("test rmsd unavailable:", e)


if __name__ == "__main__":
    main()
