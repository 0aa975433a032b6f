"""One row of the data set has no target: NaN, where the measurement failed. Its batch comes at step 97.

Modelled on missing measurements that are read as NaN: the inputs of the model are sound, and a hand-written loss
compares its output with the targets. That is cause nonfinite-input. Mended: rows without a target are left out of the
loss.
"""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

FIXED = "--fixed" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)

features = torch.randn(4096, 12)
targets = features[:, :4].sum(1, keepdim=True) + features[:, 4:5] * features[:, 5:6] + 0.1 * torch.randn(4096, 1)
targets[1111] = float("nan")
loader = DataLoader(TensorDataset(features, targets), batch_size=32, shuffle=True)
model = nn.Sequential(nn.Linear(12, 64), nn.Tanh(), nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

for step, (seen, wanted) in enumerate(loader, 1):
    if FIXED:
        measured = wanted.isfinite().all(1)
        seen, wanted = seen[measured], wanted[measured]
    loss = (model(seen) - wanted).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 32 == 0:
        print(f"step {step} loss {loss.item():.4f}")
