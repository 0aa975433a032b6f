"""All but the biases of the head were frozen for a fine-tuning that was to train an adapter as well.

Modelled on trl#3926 and transformers#42489 (an adapter that is frozen, gradient norm 0): cause frozen-parameters.
Mended: the adapter is thawed.
"""

import sys

import torch
import torch.nn.functional as F
from parts.digits import digits
from torch import nn

FIXED = "--fixed" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)


class Adapted(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(64, 64), nn.Linear(64, 10)
        self.adapter = nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 64))

    def forward(self, x):
        x = self.body(x).relu()
        return self.head(x + self.adapter(x))


(images, labels), _ = digits()
model = Adapted()
model.requires_grad_(False)
model.head.bias.requires_grad_(True)
if FIXED:
    model.adapter.requires_grad_(True)
optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-2)

for step in range(1, 301):
    rows = torch.randint(len(images), (64,))
    loss = F.cross_entropy(model(images[rows]), labels[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step} loss {loss.item():.4f}")
