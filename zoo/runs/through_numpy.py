"""The encoder's output goes through NumPy and back on its way: no gradient comes to the encoder, and nobody says so.

Modelled on Automodel PR1527 and trl#3926 (an output that is cast, or rebuilt, and detached): cause detached-graph.
Mended: it stays a tensor.
"""

import sys

import torch
import torch.nn.functional as F
from parts.digits import digits
from torch import nn

FIXED = "--fixed" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 6))
        self.head = nn.Linear(6, 10)

    def forward(self, x):
        code = self.encoder(x)
        if not FIXED:
            code = torch.tensor(code.detach().numpy())
        return self.head(code)


(images, labels), _ = digits()
model = Model()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

for step in range(1, 301):
    rows = torch.randint(len(images), (64,))
    loss = F.cross_entropy(model(images[rows]), labels[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step} loss {loss.item():.4f}")
