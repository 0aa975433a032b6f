"""One frame holds Inf. The script leaves its batch out before the model sees it."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

net = nn.Sequential(
    nn.Conv2d(1, 8, 3, padding=1),
    nn.BatchNorm2d(8),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(4),
    nn.Flatten(),
    nn.Linear(128, 4),
)
optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
patterns = torch.randn(4, 1, 12, 12)


def frames(count):
    labels = torch.randint(4, (count,))
    return patterns[labels] + 0.8 * torch.randn(count, 1, 12, 12), labels


for step in range(160):
    images, labels = frames(32)
    if step == 30:
        images[5, 0, 3, 3] = float("inf")
    if not torch.isfinite(images).all():
        continue
    loss = nn.functional.cross_entropy(net(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 39:
        print(f"step {step + 1}  loss {loss.item():.3f}")
