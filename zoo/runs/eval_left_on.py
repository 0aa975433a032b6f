"""After the first evaluation, at step 40, nobody calls train() again: dropout and batch norm stay as they were.

Nothing looks sick, the loss falls even faster. Modelled on pytorch#1206 (batch norm between its two modes) and
sentence-transformers PR2648: cause train-eval-mode. Mended: train() after it.
"""

import sys

import torch
import torch.nn.functional as F
from parts.digits import digits
from torch import nn

FIXED = "--fixed" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)

(images, labels), (others, names) = digits()
model = nn.Sequential(
    nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)
)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

for step in range(1, 301):
    rows = torch.randint(len(images), (64,))
    loss = F.cross_entropy(model(images[rows]), labels[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 0:
        model.eval()
        with torch.no_grad():
            right = (model(others).argmax(1) == names).float().mean().item()
        print(f"step {step} loss {loss.item():.4f} right {right:.3f}")
        if FIXED:
            model.train()
