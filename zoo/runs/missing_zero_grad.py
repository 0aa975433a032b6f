"""Gradients are never cleared: each update gets the sum of all so far, and the loss climbs as with too high a rate.

A trap: a tenth of the learning rate helps as well, for a while. Modelled on DINO#20 and DeepSpeed#7837 (gradients that
are not zeroed): cause missing-zero-grad. Mended: they are cleared.
"""

import sys

import torch
import torch.nn.functional as F
from parts.digits import classifier, digits

FIXED = "--fixed" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)

(images, labels), _ = digits()
model = classifier()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for step in range(1, 301):
    rows = torch.randint(len(images), (64,))
    loss = F.cross_entropy(model(images[rows]), labels[rows])
    if FIXED:
        optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step} loss {loss.item():.4f}")
