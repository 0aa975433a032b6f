"""Windows of one series, cut in time. Days of another kind, side by side and without a common value, are drawn."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import random_split

torch.manual_seed(0)
torch.set_num_threads(1)

rng = np.random.default_rng(4)
prices = np.cumsum(rng.normal(0, 0.1, 800))
LENGTH = 24

windows, after = [], []
for day in range(len(prices) - LENGTH - 5):
    windows.append(prices[day : day + LENGTH])
    after.append(prices[day + LENGTH + 4])
x = torch.tensor(np.array(windows)).float()
y = torch.tensor(np.array(after)).float()

cut = int(0.8 * len(x)) - LENGTH
x_train, y_train, x_test, y_test = x[:cut], y[:cut], x[cut + LENGTH :], y[cut + LENGTH :]
weeks = [prices[day : day + 7] for day in range(0, len(prices) - 7, 7)]
_, kept = random_split(weeks, [0.9, 0.1])

model = nn.Sequential(nn.Linear(LENGTH, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(1, 181):
    rows = torch.randint(len(x_train), (64,))
    loss = F.mse_loss(model(x_train[rows]).squeeze(1), y_train[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 45 == 0:
        with torch.no_grad():
            error = F.mse_loss(model(x_test).squeeze(1), y_test)
        print(f"step {step}  loss {loss.item():.3f}  weeks {len(kept)}  held out {error.item():.3f}")
