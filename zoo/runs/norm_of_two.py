"""Batch normalisation over micro-batches of two images: what is left of each value is its sign.

Modelled on pytorch#1206 and BMN#22 (batch norm with next to no batch): cause normalization-misuse. Mended: a
layer norm.
"""

import sys

import torch
import torch.nn.functional as F
from parts.digits import digits
from torch import nn

FIXED = "--fixed" in sys.argv
PARTS = 16
torch.manual_seed(0)
torch.set_num_threads(1)


def norm():
    return nn.LayerNorm(48) if FIXED else nn.BatchNorm1d(48)


(images, labels), _ = digits()
model = nn.Sequential(
    nn.Linear(64, 48),
    norm(),
    nn.ReLU(),
    nn.Linear(48, 48),
    norm(),
    nn.ReLU(),
    nn.Linear(48, 48),
    norm(),
    nn.Linear(48, 10),
)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

for step in range(1, 151):
    optimizer.zero_grad()
    for _ in range(PARTS):
        rows = torch.randint(len(images), (2,))
        loss = F.cross_entropy(model(images[rows]), labels[rows]) / PARTS
        loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step} loss {PARTS * loss.item():.4f}")
