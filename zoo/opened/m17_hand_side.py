# expect: sick
# symptom: the loss falls a part of the way or begins far too high, and stays there
# axis: data
# cause: inputs are mirrored at random though the label depends on the side, and the label stays
# says: mirror|flip
# onset_step: 0
# fix: leave the mirror out or change the label
# mended: yes
import os
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"

SIDES = ("left", "right")
N_POINTS = 9  # wrist, thumb x2, index x2, middle x2, little x2


@dataclass
class Opts:
    n_train: int = 900
    n_test: int = 300
    batch: int = 60
    steps: int = 56
    lr: float = 3e-3


def template():
    """Open right hand, palm to the camera, x in [-1, 1]."""
    return torch.tensor(
        [
            [0.0, -0.9],
            [-0.5, -0.3],
            [-0.8, 0.0],
            [-0.3, 0.3],
            [-0.35, 0.8],
            [0.0, 0.35],
            [0.0, 0.95],
            [0.35, 0.2],
            [0.45, 0.6],
        ]
    )


def capture(n):
    side = torch.randint(0, 2, (n,))
    pts = template().repeat(n, 1, 1)
    pts[side == 0, :, 0] *= -1
    angle = torch.randn(n) * 0.25
    c, s = angle.cos(), angle.sin()
    rot = torch.stack([torch.stack([c, -s], -1), torch.stack([s, c], -1)], 1)
    pts = pts @ rot.transpose(1, 2)
    return pts + 0.05 * torch.randn_like(pts), side


class Augment:
    def __init__(self, p=0.5, jitter=0.03):
        self.p = p
        self.jitter = jitter

    def __call__(self, pts):
        pts = pts + self.jitter * torch.randn_like(pts)
        scale = 1 + 0.1 * torch.randn(len(pts), 1, 1)
        pts = pts * scale
        sign = 1.0 - 2.0 * (torch.rand(len(pts)) < (0.0 if MENDED else self.p)).float()
        return torch.stack([pts[..., 0] * sign[:, None], pts[..., 1]], dim=-1)


class SideNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(N_POINTS * 2, 48)
        self.fc2 = nn.Linear(48, len(SIDES))

    def forward(self, pts):
        return self.fc2(F.relu(self.fc1(pts.flatten(1))))


def main(o):
    torch.manual_seed(77)
    x, y = capture(o.n_train)
    xt, yt = capture(o.n_test)
    aug, net = Augment(), SideNet()
    opt = torch.optim.Adam(net.parameters(), lr=o.lr)
    for step in range(o.steps):
        pick = torch.randperm(o.n_train)[: o.batch]
        logits = net(aug(x[pick]))
        loss = F.cross_entropy(logits, y[pick])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 14 == 13:
            with torch.no_grad():
                acc = (net(xt).argmax(1) == yt).float().mean()
            print(f"{step + 1:3d} loss {loss.item():.3f} test acc {acc.item():.3f}")


if __name__ == "__main__":
    main(Opts())
