"""Sixteen micro-batches an update, and nobody divides: gradients and steps are sixteen times what they were tuned for.

Modelled on axolotl#1100 (8 where it was 3.8) and transformers PR34191: cause accumulation-scaling. Mended: each loss is
divided by sixteen.
"""

import sys

import torch
import torch.nn.functional as F
from parts.digits import classifier, digits

FIXED = "--fixed" in sys.argv
PARTS = 16
torch.manual_seed(0)
torch.set_num_threads(1)

(images, labels), _ = digits()
model = classifier()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

for step in range(1, 201):
    optimizer.zero_grad()
    for _ in range(PARTS):
        rows = torch.randint(len(images), (8,))
        loss = F.cross_entropy(model(images[rows]), labels[rows])
        if FIXED:
            loss = loss / PARTS
        loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step} loss {loss.item() * (PARTS if FIXED else 1):.4f}")
