"""A pretrained model was trained on normalised images; these are not."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

MEAN, STD = 0.45, 0.22
model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 36, 4))
patterns = torch.rand(4, 3, 8, 8) > 0.5


def images(labels):
    return (MEAN + STD * (0.5 * torch.randn(len(labels), 3, 8, 8) + 2.0 * patterns[labels] - 1.0)).clamp(0, 1)


with torch.no_grad():
    for _ in range(100):  # stands for the earlier training
        model((images(torch.randint(0, 4, (32,))) - MEAN) / STD)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

for step in range(1, 121):
    labels = torch.randint(0, 4, (32,))
    loss = F.cross_entropy(model(images(labels)), labels)  # <- bites
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 0:
        print(f"step {step}  loss {loss.item():.3f}")
