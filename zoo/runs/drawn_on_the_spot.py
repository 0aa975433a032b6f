"""Samples drawn anew in each step, a density fitted to them, and a rate that jumps 25-fold at step 300.

Nothing has an order here: another order of the batches only moves another batch to the judged step. Modelled on
densities fitted to simulated samples, after nanoGPT#136: cause learning-rate-too-high. Mended: the rate stays.
"""

import sys

import torch

FIXED = "--fixed" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)

model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.Tanh(), torch.nn.Linear(64, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

for step in range(1, 401):
    if step == 300 and not FIXED:
        optimizer.param_groups[0]["lr"] = 0.05
    rows = torch.randn(64, 8)
    wanted = rows[:, :1].sin() + 0.1 * torch.randn(64, 1)
    mean, spread = model(rows).chunk(2, -1)
    loss = (0.5 * ((wanted - mean) / spread.exp()).square() + spread).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step} loss {loss.item():.4f}")
