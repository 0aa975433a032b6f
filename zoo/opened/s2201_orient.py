# expect: sick
# symptom: the angular error falls nicely, then loss turns NaN part-way through and stays NaN until the end
# axis: loss
# cause: the geodesic loss takes acos of a cosine clamped at exactly 1, where the derivative of acos is infinite, so one (nearly) perfect prediction gives inf/NaN gradients
# says: (a?r?c?cos\w*|arc-?cos\w*|geodesic).{0,160}(deriv|grad|slope|singular|infinit|inf\b|nan|unbounded|blow|explod|diverg)|(deriv|grad|slope|singular|infinit|nan)\w*.{0,160}(\ba?cos\b|\barccos\w*|arc-cos|geodesic)
# onset_step: 285
# fix: clamp the cosine to [-1 + 1e-6, 1 - 1e-6] before acos
# mended: yes
"""Orientation regression for bin picking.

A rigid marker constellation is rotated, projected into three noisy-free depth
rasters and a small network regresses the 6D rotation representation
(Zhou et al. 2019). Trained with the angle between predicted and true rotation.
Parts lying flat in their tray share the home orientation.
"""

import math
import os
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(11)
MENDED = os.environ.get("MENDED", "0") == "1"
MARGIN = 1e-6 if MENDED else 0.0

STEPS, BATCH = 600, 96
HOME_SHARE = 0.04
device = torch.device("cpu")


def random_rotations(n, gen):
    q = torch.randn(n, 4, generator=gen)
    q = q / q.norm(dim=1, keepdim=True)
    w, x, y, z = q.unbind(1)
    rows = torch.stack(
        [
            1 - 2 * (y * y + z * z),
            2 * (x * y - z * w),
            2 * (x * z + y * w),
            2 * (x * y + z * w),
            1 - 2 * (x * x + z * z),
            2 * (y * z - x * w),
            2 * (x * z - y * w),
            2 * (y * z + x * w),
            1 - 2 * (x * x + y * y),
        ],
        dim=1,
    )
    return rows.view(n, 3, 3)


def limited_rotations(n, gen, max_deg=70.0):
    """axis-angle rotations up to max_deg"""
    axis = F.normalize(torch.randn(n, 3, generator=gen), dim=1)
    ang = torch.rand(n, 1, 1, generator=gen) * math.radians(max_deg)
    K = torch.zeros(n, 3, 3)
    K[:, 0, 1], K[:, 0, 2] = -axis[:, 2], axis[:, 1]
    K[:, 1, 0], K[:, 1, 2] = axis[:, 2], -axis[:, 0]
    K[:, 2, 0], K[:, 2, 1] = -axis[:, 1], axis[:, 0]
    eye = torch.eye(3).expand(n, 3, 3)
    return eye + ang.sin() * K + (1 - ang.cos()) * (K @ K)


class Scene:
    def __init__(self, seed):
        self.gen = torch.Generator().manual_seed(seed)
        self.markers = torch.randn(14, 3, generator=torch.Generator().manual_seed(5))
        g = torch.linspace(-2.5, 2.5, 12)
        self.grid = torch.stack(torch.meshgrid(g, g, indexing="ij"), -1)

    def render(self, rot):
        pts = torch.einsum("bij,kj->bki", rot, self.markers)
        views = []
        for a, b, d in ((0, 1, 2), (1, 2, 0), (0, 2, 1)):
            uv = pts[:, :, [a, b]]
            dist = (self.grid[None, None] - uv[:, :, None, None]).pow(2).sum(-1)
            splat = torch.exp(-dist / 0.35) * (1.5 + 0.5 * pts[:, :, d, None, None])
            views.append(splat.sum(1))
        return torch.stack(views, 1)

    def batch(self, n):
        rot = limited_rotations(n, self.gen)
        home = torch.rand(n, generator=self.gen) < HOME_SHARE
        rot[home] = torch.eye(3)
        return self.render(rot), rot


class PoseNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 24, 3, padding=1),
            nn.GELU(),
            nn.Conv2d(24, 48, 3, stride=2, padding=1),
            nn.GELU(),
            nn.Conv2d(48, 64, 3, stride=2, padding=1),
            nn.GELU(),
            nn.Flatten(),
        )
        self.fc = nn.Sequential(nn.Linear(64 * 9, 192), nn.GELU(), nn.Linear(192, 6))
        nn.init.normal_(self.fc[-1].weight, std=0.01)
        self.fc[-1].bias.data = torch.tensor([1.0, 0, 0, 0, 1.0, 0])

    def forward(self, img):
        a = self.fc(self.features(img))
        b1 = F.normalize(a[:, :3], dim=1)
        b2 = F.normalize(a[:, 3:] - (b1 * a[:, 3:]).sum(1, keepdim=True) * b1, dim=1)
        b3 = torch.cross(b1, b2, dim=1)
        return torch.stack([b1, b2, b3], dim=2)


def angle_between(pred, true):
    trace = (pred * true).sum(dim=(1, 2))
    cosine = ((trace - 1) / 2).clamp(-1 + MARGIN, 1 - MARGIN)
    return torch.acos(cosine)


def main():
    t0 = time.time()
    train, val = Scene(1), Scene(2)
    v_img, v_rot = val.batch(400)
    net = PoseNet().to(device)
    opt = torch.optim.Adam(net.parameters(), lr=1.5e-3)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, 2.5e-3, total_steps=STEPS, pct_start=0.15)

    for step in range(1, STEPS + 1):
        img, rot = train.batch(BATCH)
        loss = angle_between(net(img), rot).mean()
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        sched.step()
        if step % 20 == 0:
            print(f"step {step:4d}  loss {loss.item():.4f} rad  ({math.degrees(loss.item()):.2f} deg)")
        if step % 200 == 0:
            with torch.no_grad():
                deg = torch.rad2deg(angle_between(net(v_img), v_rot)).mean()
            print(f"  [val] mean angular error {deg.item():.2f} deg")
    print(f"finished in {time.time() - t0:.1f}s")


if __name__ == "__main__":
    main()
