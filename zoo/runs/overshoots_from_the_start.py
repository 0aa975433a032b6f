"""A regression whose first step is too long already, and each next one longer: the loss goes from 1 to 1e20.

Leaving out any one batch only puts it off by a step, so a smaller loss at the end proves nothing against that batch.
Modelled on nanoGPT#136: cause learning-rate-too-high. Mended: a fiftieth of the rate.
"""

import sys

import torch

FIXED = "--fixed" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)

truth = torch.randn(32, 1)
model = torch.nn.Linear(32, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.02 if FIXED else 1.0)

for step in range(1, 41):
    rows = torch.randn(64, 32)
    loss = torch.nn.functional.mse_loss(model(rows), rows @ truth)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0 or step == 1:
        print(f"step {step} loss {loss.item():.4g}")
