# expect: healthy
# symptom: resembles the fault that inputs are mirrored at random though the label depends on the side, and the label stays
# axis: none
# mended: none
import math

import torch
from torch import nn

torch.manual_seed(64)
GESTURES = ["fist", "point", "victory", "open"]
EXTENDED = torch.tensor(
    [
        [0, 0, 0, 0, 0],
        [0, 1, 0, 0, 0],
        [0, 1, 1, 0, 0],
        [1, 1, 1, 1, 1],
    ],
    dtype=torch.float32,
)
SPREAD = torch.tensor([-0.9, -0.35, 0.0, 0.3, 0.6])


def sample_hands(n):
    """Finger tips (x, y) plus the wrist, of either hand."""
    gesture = torch.randint(0, len(GESTURES), (n,))
    left_hand = torch.rand(n) < 0.3
    reach = 0.4 + 0.8 * EXTENDED[gesture] + 0.06 * torch.randn(n, 5)
    theta = SPREAD + 0.05 * torch.randn(n, 5)
    tips = torch.stack([reach * torch.sin(theta), reach * torch.cos(theta)], -1)
    tips[left_hand, :, 0] = -tips[left_hand, :, 0]
    wrist = torch.zeros(n, 1, 2)
    return torch.cat([wrist, tips], 1), gesture, left_hand


def augment(pts):
    """In-plane rotation, and x -> -x because most recordings are right hands."""
    n = pts.shape[0]
    a = (torch.rand(n) - 0.5) * math.pi / 6
    rot = torch.stack([a.cos(), -a.sin(), a.sin(), a.cos()], -1).view(n, 2, 2)
    pts = torch.einsum("nij,nkj->nki", rot, pts)
    mirror = torch.rand(n) < 0.5
    pts[mirror, :, 0] *= -1
    return pts


class GestureMLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, len(GESTURES)))

    def forward(self, pts):
        return self.layers(pts.flatten(1))


x, y, _ = sample_hands(1200)
xv, yv, side_v = sample_hands(400)
model = GestureMLP()
opt = torch.optim.Adam(model.parameters(), lr=5e-3)
for step in range(60):
    rows = torch.randint(0, len(x), (80,))
    loss = nn.functional.cross_entropy(model(augment(x[rows])), y[rows])
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 19:
        model.eval()
        with torch.no_grad():
            ok = (model(xv).argmax(1) == yv).float()
        model.train()
        print(
            f"step {step + 1} loss {loss.item():.3f} "
            f"left {ok[side_v].mean().item():.3f} right {ok[~side_v].mean().item():.3f}"
        )
