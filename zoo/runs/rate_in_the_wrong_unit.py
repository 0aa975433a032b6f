"""The learning rate was given in thousandths twice over: 2e-6 where 2e-3 was meant, and nothing is learned.

Modelled on Pai-Megatron#366 (a rate of 1e-7, and no progress to see): cause learning-rate-too-low. Mended: 2e-3.
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
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3 if FIXED else 2e-6)

for step in range(1, 601):
    rows = torch.randint(len(images), (64,))
    loss = F.cross_entropy(model(images[rows]), labels[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step} loss {loss.item():.4f}")
