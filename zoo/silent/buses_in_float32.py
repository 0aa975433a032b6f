"""Unix times of buses become float32 before the gaps between them are taken: each gap is a multiple of 128 seconds."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

begin, stops = 1_731_600_000, 9
pace = 30 + 60 * torch.rand(2000, 1, dtype=torch.float64)
timestamps = begin + 86400 * torch.rand(2000, 1, dtype=torch.float64) + pace * torch.arange(stops)
late = (pace[:, 0] > 60).float()
times = timestamps.float()  # <- bites
gaps = (times[:, 1:] - times[:, :-1]) / 60
model = nn.Sequential(nn.Linear(stops - 1, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(1, 161):
    rows = torch.randint(0, 2000, (64,))
    loss = nn.functional.binary_cross_entropy_with_logits(model(gaps[rows]).squeeze(1), late[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 0:
        print(f"step {step}  loss {loss.item():.4f}")
