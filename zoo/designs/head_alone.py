"""Healthy: a head on features that stay as they are; it alone is in the optimizer, the rest in evaluation mode."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(32, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.1))
        self.head = nn.Linear(64, 10)

    def forward(self, x):
        return self.head(self.features(x))


centers = torch.randn(10, 32)
model = Classifier()
optimizer = torch.optim.Adam(model.head.parameters(), lr=1e-2)

for step in range(1, 151):
    model.train()
    model.features.eval()
    labels = torch.randint(10, (64,))
    loss = F.cross_entropy(model(centers[labels] + torch.randn(64, 32)), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
