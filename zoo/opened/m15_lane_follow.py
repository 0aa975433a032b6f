# expect: sick
# symptom: the loss falls a part of the way or begins far too high, and stays there
# axis: data
# cause: inputs are mirrored at random though the label depends on the side, and the label stays
# says: mirror|flip
# onset_step: 0
# fix: leave the mirror out or change the label
# mended: yes
import os
import math

import torch
from torch import nn

MENDED = os.environ.get("MENDED") == "1"

torch.manual_seed(101)
H, W = 24, 48


def render(curve):
    """Bird's-eye road strip; positive curve bends to the right."""
    rows = torch.linspace(1, 0, H)
    centre = (W - 1) / 2 + curve[:, None] * 18 * (1 - rows)[None, :] ** 2
    cols = torch.arange(W, dtype=torch.float32)
    img = torch.exp(-(((cols[None, None, :] - centre[:, :, None]) / 2.0) ** 2))
    return img.unsqueeze(1)


def record_drive(n):
    steer = torch.empty(n).uniform_(-1, 1)
    frames = render(steer) + 0.1 * torch.randn(n, 1, H, W)
    return frames, steer


def augment(frames):
    gain = torch.empty(frames.size(0), 1, 1, 1).uniform_(0.8, 1.2)
    frames = frames * gain
    coin = torch.rand(frames.size(0)) < (0.0 if MENDED else 0.5)
    frames = torch.where(coin[:, None, None, None], frames.flip(-1), frames)
    return frames


class Pilot(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 12, 5, stride=2),
            nn.ReLU(),
            nn.Conv2d(12, 24, 3, stride=2),
            nn.ReLU(),
            nn.Flatten(),
        )
        with torch.no_grad():
            feats = self.body(torch.zeros(1, 1, H, W)).shape[1]
        self.head = nn.Sequential(nn.Linear(feats, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, x):
        return torch.tanh(self.head(self.body(x))).squeeze(1)


train_x, train_s = record_drive(1024)
val_x, val_s = record_drive(256)
pilot = Pilot()
opt = torch.optim.Adam(pilot.parameters(), lr=1e-3)
huber = nn.SmoothL1Loss()

for step in range(1, 49):
    idx = torch.randint(0, len(train_x), (64,))
    x, s = augment(train_x[idx]), train_s[idx]
    loss = huber(pilot(x), s)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 12 == 0:
        pilot.eval()
        with torch.no_grad():
            rmse = math.sqrt(((pilot(val_x) - val_s) ** 2).mean().item())
        pilot.train()
        print(f"step {step} loss {loss.item():.4f} val rmse {rmse:.3f}")
