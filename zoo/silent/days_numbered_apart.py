"""The shops of each day are numbered anew, so an embedding of one day is read for other shops on the next."""

import numpy as np
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
draw = np.random.default_rng(0)

SHOPS, DAYS, ROWS = 40, 6, 640
NAMES = np.array([f"shop {one}" for one in range(SHOPS)])
worth = draw.normal(size=SHOPS)


def sales():
    shops = draw.permutation(SHOPS)[:30][draw.integers(0, 30, ROWS)]
    return NAMES[shops], worth[shops] + 0.1 * draw.normal(size=ROWS)


def numbered(names):
    mapping = {name: code for code, name in enumerate(sorted(set(names.tolist())))}  # <- bites: those of this day
    return torch.tensor([mapping[name] for name in names.tolist()])


model = nn.Sequential(nn.Embedding(SHOPS, 8), nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for day in range(DAYS):
    names, sold = sales()
    shops, sold = numbered(names), torch.as_tensor(sold, dtype=torch.float32)
    for rows in torch.arange(ROWS).split(32):
        loss = nn.functional.mse_loss(model(shops[rows]).squeeze(1), sold[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"day {day}  loss {loss.item():.4f}")
