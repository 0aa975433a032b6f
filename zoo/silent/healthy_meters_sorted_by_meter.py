"""They are sorted by meter first."""

import numpy as np
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
generator = np.random.default_rng(0)

METERS, HOURS = 40, 48
meter, hour = (one.ravel() for one in np.meshgrid(np.arange(METERS), np.arange(HOURS), indexing="ij"))
reading = np.sin(hour / (1 + meter % 7)) + 0.1 * generator.standard_normal(meter.size)
arrived = generator.permutation(meter.size)
meter, hour, reading = meter[arrived], hour[arrived], reading[arrived]
table = reading[np.lexsort((hour, meter))].reshape(METERS, HOURS)

windows = torch.tensor(np.lib.stride_tricks.sliding_window_view(table, 13, axis=1).reshape(-1, 13).copy()).float()
model = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(1, 121):
    rows = windows[torch.randint(len(windows), (64,))]
    loss = nn.functional.mse_loss(model(rows[:, :12]).squeeze(-1), rows[:, 12])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 0:
        print(f"step {step}  loss {loss.item():.3f}")
