"""Masks of four classes are made smaller as images are: between class 1 and class 3 lies a band of class 2."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

ROWS, WIDE, SMALL = 128, 48, 20
mask = torch.zeros(ROWS, WIDE, WIDE)
for row in range(ROWS):
    for kind in torch.randperm(3) + 1:
        top, left = torch.randint(0, WIDE - 16, (2,))
        mask[row, top : top + 16, left : left + 16] = kind
levels = torch.tensor([0.0, 1.0, -1.0, 2.0])
image = levels[mask.long()][:, None] + 0.3 * torch.randn(ROWS, 1, WIDE, WIDE)

image = F.interpolate(image, size=(SMALL, SMALL), mode="bilinear")
mask = F.interpolate(mask[:, None], size=(SMALL, SMALL), mode="bilinear").squeeze(1)  # <- bites
mask = mask.long()

model = nn.Sequential(
    nn.Conv2d(1, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 4, 1)
)
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for step in range(1, 121):
    rows = torch.randint(ROWS, (16,))
    loss = F.cross_entropy(model(image[rows]), mask[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 30 == 0:
        print(f"step {step}  loss {loss.item():.3f}")
