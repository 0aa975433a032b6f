"""The head is replaced by one of ten classes after the optimizer was made: it holds the old one, and the new one stays.

Modelled on transformers#26334 and unsloth#1282 (fewer parameters are trained than meant): cause
parameters-not-in-optimizer. Mended: the optimizer is made afterwards.
"""

import sys

import torch
import torch.nn.functional as F
from parts.digits import digits
from torch import nn

FIXED = "--fixed" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)


class Classifier(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.body, self.head = nn.Linear(64, 8), nn.Linear(8, classes)

    def forward(self, x):
        return self.head(self.body(x).tanh())


(images, labels), _ = digits()
model = Classifier(100)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
model.head = nn.Linear(8, 10)
nn.init.zeros_(model.head.weight[:, 4:].data)
if FIXED:
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

for step in range(1, 301):
    rows = torch.randint(len(images), (64,))
    loss = F.cross_entropy(model(images[rows]), labels[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step} loss {loss.item():.4f}")
