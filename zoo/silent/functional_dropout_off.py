"""Dropout by function, and `eval()` after the first epoch without `train()`: from then on nothing is dropped."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(12, 64), nn.Linear(64, 5)

    def forward(self, x):
        return self.last(F.dropout(F.relu(self.first(x)), 0.5, training=self.training))


inputs = torch.randn(320, 12)
labels = (inputs @ torch.randn(12, 5) + torch.randn(320, 5)).argmax(1)
held_out = torch.randn(64, 12)
model = Classifier()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

model.train()  # <- bites: before the loop only
for _ in range(8):
    for rows in torch.randperm(256).split(32):
        loss = F.cross_entropy(model(inputs[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        model(held_out)
