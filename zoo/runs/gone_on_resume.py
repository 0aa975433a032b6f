"""A running sum of each pixel, kept in float16 and in no checkpoint, passes 65504, and its mean is taken off the input.

A trap: whoever resumes from a checkpoint begins with an empty sum, and the fault does not come back. Modelled on
axolotl#2326 and Megatron-LM#780 (a NaN that a resume does not show): cause half-precision-overflow. Mended: the sum is
kept in float32.
"""

import sys

import torch
import torch.nn.functional as F
from parts.digits import digits
from torch import nn

FIXED = "--fixed" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)


class Centered(nn.Module):
    """Takes the mean of all inputs so far off."""

    def __init__(self):
        super().__init__()
        self.total, self.count = torch.zeros(64, dtype=torch.float32 if FIXED else torch.float16), 0

    def forward(self, x):
        self.total = self.total + x.sum(0).to(self.total.dtype)
        self.count += len(x)
        return x - self.total.float() / self.count


(images, labels), _ = digits()
model = nn.Sequential(Centered(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

for step in range(1, 701):
    rows = torch.randint(len(images), (192,))
    loss = F.cross_entropy(model(images[rows]), labels[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print(f"step {step} loss {loss.item():.4f}")
