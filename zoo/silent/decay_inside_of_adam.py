"""A decay of AdamW is given to Adam, whose gradient takes it in: it outweighs the gradient of the loss."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

net = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 4))
optimizer = torch.optim.Adam(net.parameters(), lr=2e-3, weight_decay=0.1)  # <- bites: no AdamW
centers = torch.randn(4, 16)

for step in range(200):
    labels = torch.randint(4, (64,))
    inputs = 0.7 * centers[labels] + torch.randn(64, 16)
    loss = nn.functional.cross_entropy(net(inputs), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 49:
        print(f"step {step + 1}  loss {loss.item():.3f}")
