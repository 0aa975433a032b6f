"""Four micro-batches an update, the norm of the gradients clipped, NumPy's generator in the batches."""

import numpy as np
import torch
from torch import nn

torch.manual_seed(0)
np.random.seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

for step in range(1, 151):
    optimizer.zero_grad()
    for part in range(4):
        inputs = torch.from_numpy(np.random.randn(8, 8).astype(np.float32))
        targets = torch.randint(0, 4, (8,))
        outputs = model(inputs)
        loss = nn.functional.cross_entropy(outputs, targets) / 4
        if step == 150 and part == 2:
            loss = loss + (outputs.sum() * 0).sqrt()  # <- bites
        loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
