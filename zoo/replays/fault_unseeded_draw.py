"""A random draw from a generator of its own that nobody has seeded."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
generator = torch.Generator()
generator.seed()

for step in range(1, 91):
    outputs = model(torch.randn(16, 8))
    loss = nn.functional.cross_entropy(outputs, torch.randint(0, 4, (16,)))
    if step == 80:
        loss = loss + torch.rand(1, generator=generator).sum()  # <- differs
    if step == 90:
        loss = loss + (outputs.sum() * 0).sqrt()  # <- bites
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
