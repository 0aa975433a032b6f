"""A running scale as the mean of squares less the square of the mean, of columns near their own spread: healthy.

It is the formula that cancels for large offsets; here nothing is lost.
"""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

WIDTH, ROWS = 3, 3000
front = torch.cumsum(torch.randn(ROWS) * 0.2, 0)
front = front - torch.linspace(float(front[0]), float(front[-1]), ROWS)
weather = torch.stack([12 * front, 11 + 2 * torch.randn(ROWS), 60 + 9 * torch.randn(ROWS)], 1)
wind = (torch.tanh(front) + 0.05 * (weather[:, 1] - 11)).unsqueeze(1)
count, total, squares = 0, torch.zeros(WIDTH), torch.zeros(WIDTH)
model = nn.Sequential(nn.Linear(WIDTH, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

for step in range(1, 201):
    picked = torch.randint(ROWS, (64,))
    rows = weather[picked]
    count += len(rows)
    total += rows.sum(0)
    squares += (rows * rows).sum(0)
    mean = total / count
    deviation = (squares / count - mean**2).clamp(min=1e-4).sqrt()
    loss = nn.functional.mse_loss(model((rows - mean) / deviation), wind[picked])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f}")
