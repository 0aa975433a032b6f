"""A new head is made without being initialised: it holds what the memory held before, here the bytes of a text.

Modelled on transformers#46002 and nanochat PR686 (a key that is missing, and memory as it was): cause
uninitialized-parameters. Mended: it is initialised.
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
head = nn.Linear(64, 10)
if not FIXED:
    left_behind = bytearray(b"the loss is nan and I do not know why. " * 80)
    head.weight.data = torch.frombuffer(left_behind, dtype=torch.float32)[: 10 * 64].reshape(10, 64).clone()
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), head)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

for step in range(1, 201):
    rows = torch.randint(len(images), (64,))
    loss = F.cross_entropy(model(images[rows]), labels[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step} loss {loss.item():.4f}")
