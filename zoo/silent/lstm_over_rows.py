"""A recurrent layer without `batch_first=True` is given [rows, places, features]."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.read = nn.LSTM(4, 32)  # <- bites
        self.head = nn.Linear(32, 2)

    def forward(self, x):
        states, _ = self.read(x)
        return self.head(states[:, -1])


model = Reader()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for step in range(1, 201):
    x = torch.randn(24, 10, 4)
    labels = (x[:, :, 0].sum(1) > 0).long()
    loss = F.cross_entropy(model(x), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
