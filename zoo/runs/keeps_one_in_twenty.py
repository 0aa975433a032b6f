"""A dropout of 0.95 where 0.05 was meant: one value in twenty is kept, and the model stays near a guess.

Modelled on pytorch's forum on p as the share to drop and TensorFlow's keep_prob: cause regularization-too-strong.
Mended: 0.05.
"""

import sys

import torch
import torch.nn.functional as F
from parts.digits import digits
from torch import nn

FIXED = "--fixed" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)

(images, labels), _ = digits()
dropout = 0.05 if FIXED else 0.95
model = nn.Sequential(
    *(nn.Linear(64, 64), nn.ReLU(), nn.Dropout(dropout)),
    *(nn.Linear(64, 64), nn.ReLU(), nn.Dropout(dropout)),
    nn.Linear(64, 10),
)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

for step in range(1, 601):
    rows = torch.randint(len(images), (64,))
    loss = F.cross_entropy(model(images[rows]), labels[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step} loss {loss.item():.4f}")
