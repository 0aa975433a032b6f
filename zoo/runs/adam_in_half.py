"""Weights and Adam's state in float16, epsilon 1e-8: it is zero there, as is the square of a small gradient: 0 / 0.

Images and captions of them in one space, as in CLIP. Modelled on openai/CLIP#40 (NaN after one step): cause
optimizer-epsilon-underflow. Mended: an epsilon that float16 can say.
"""

import sys

import torch
import torch.nn.functional as F
from parts.digits import digits
from torch import nn

FIXED = "--fixed" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)


class TwoTowers(nn.Module):
    def __init__(self):
        super().__init__()
        self.image, self.caption = nn.Linear(64, 32), nn.Embedding(10, 32)

    def forward(self, images, labels):
        seen, told = self.image(images).float(), self.caption(labels).float()
        return 10 * F.normalize(seen, dim=1) @ F.normalize(told, dim=1).T


(images, labels), _ = digits()
model = TwoTowers().half()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, eps=1e-4 if FIXED else 1e-8)

for step in range(1, 201):
    rows = torch.randint(len(images), (32,))
    logits = model(images[rows].half(), torch.arange(10))
    loss = F.cross_entropy(logits, labels[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step} loss {loss.item():.4f}")
