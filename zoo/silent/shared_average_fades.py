"""An average of the weights shares its tensors with the model, and scales them down after each update."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

net = nn.Sequential(
    nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 4)
)
optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
average = [one.data for one in net.parameters()]  # <- bites: no copies
centers = torch.randn(4, 16)

for step in range(160):
    labels = torch.randint(4, (64,))
    inputs = 0.7 * centers[labels] + torch.randn(64, 16)
    loss = nn.functional.cross_entropy(net(inputs), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for mean, one in zip(average, net.parameters(), strict=True):
            mean.mul_(0.96).add_(one, alpha=0.02)
    if step % 40 == 39:
        print(f"step {step + 1}  loss {loss.item():.3f}")
