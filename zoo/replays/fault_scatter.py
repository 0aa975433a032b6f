"""Two threads add up many numbers in a few places: the order, and so the sum, is another one each time."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(2)
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

for step in range(1, 91):
    outputs = model(torch.randn(16, 8))
    loss = nn.functional.cross_entropy(outputs, torch.randint(0, 4, (16,)))
    if step == 80:
        places, values = torch.randint(0, 8, (1_000_000,)), torch.randn(1_000_000)
        sums = torch.zeros(8)
        sums.index_put_((places,), values, accumulate=True)  # <- differs
        loss = loss + sums.sum() * 0.01
    if step == 90:
        loss = loss + (outputs.sum() * 0).sqrt()  # <- bites
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
