"""Healthy: all images are normalised, noise is added in training only, and a test on darker images comes beside."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)

labels = torch.arange(640) % 4
images = 60 + 40 * torch.rand(640, 1, 8, 8) + 60 * (torch.rand(4, 1, 8, 8)[labels] > 0.5)
images = images.clamp(0, 255).round() / 255
normalised = (images - images.mean()) / images.std()

train = DataLoader(TensorDataset(normalised[:512], labels[:512]), 32, shuffle=True)
validation = DataLoader(TensorDataset(normalised[512:], labels[512:]), 32)
darker = DataLoader(TensorDataset((0.1 * images[512:] - images.mean()) / images.std(), labels[512:]), 32)
model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

for epoch in range(1, 8):
    for x, y in train:
        loss = F.cross_entropy(model(x + torch.randn_like(x)), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        right = [sum((model(x).argmax(1) == y).sum().item() for x, y in one) for one in (validation, darker)]
    print(f"epoch {epoch}  loss {loss.item():.3f}  right {right[0] / 128:.0%} and {right[1] / 128:.0%}")
