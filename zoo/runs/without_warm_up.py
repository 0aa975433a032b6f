"""A deep transformer with its norms after the sums gets the whole rate at once, and never comes off the ground.

Modelled on maskrcnn-benchmark#841 (WARMUP_ITERS) and 2002.04745: cause missing-warmup. Mended: the rate rises over 100
steps.
"""

import sys

import torch
import torch.nn.functional as F
from parts.digits import digits
from torch import nn

FIXED = "--fixed" in sys.argv
RATE, DEPTH = 6e-3, 24
torch.manual_seed(0)
torch.set_num_threads(1)


class Sum(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.part = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        return self.norm(x + self.part(x))


(images, labels), _ = digits()
model = nn.Sequential(nn.Linear(64, 48), *(Sum(48) for _ in range(DEPTH)), nn.Linear(48, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=RATE, betas=(0.9, 0.98))

for step in range(1, 301):
    for group in optimizer.param_groups:
        group["lr"] = RATE * min(1.0, step / 100) if FIXED else RATE
    rows = torch.randint(len(images), (64,))
    loss = F.cross_entropy(model(images[rows]), labels[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step} loss {loss.item():.4f}")
