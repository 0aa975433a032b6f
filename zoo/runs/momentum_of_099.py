"""SGD with a momentum of 0.995 for 0.9: twenty times the steps that the rate promises, and the loss swings and climbs.

Modelled on the loss spikes of large-batch SGD under a borrowed momentum (2002.03432 on effective rates): cause
momentum-too-high. Mended: a momentum of 0.9 at the same rate.
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
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9 if FIXED else 0.995)

for step in range(1, 401):
    rows = torch.randint(len(images), (64,))
    loss = F.cross_entropy(model(images[rows]), labels[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 25 == 0:
        print(f"step {step} loss {loss.item():.4f}")
