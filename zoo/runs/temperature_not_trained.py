"""Images and their labels in one space; the learned temperature runs through `.item()`, so it never moves.

A contrastive loss that ends far too high. Modelled on kornia#3481 and CLIP PR530 (the scale of the logits): cause
detached-graph. Mended: the parameter itself is used.
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
        self.image = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 16))
        self.caption = nn.Embedding(10, 16)
        self.log_scale = nn.Parameter(torch.tensor(0.0))

    def forward(self, images, labels):
        scale = self.log_scale.exp()
        if not FIXED:
            scale = scale.item()
        return scale * F.normalize(self.image(images), dim=1) @ F.normalize(self.caption(labels), dim=1).T


(images, labels), _ = digits()
model = TwoTowers()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

for step in range(1, 301):
    rows = torch.randint(len(images), (64,))
    loss = F.cross_entropy(model(images[rows], torch.arange(10)), labels[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step} loss {loss.item():.4f}")
