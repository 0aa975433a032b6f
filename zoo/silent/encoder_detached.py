"""The features of an encoder are detached before the head: the optimizer holds it, and it never learns."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 32))
        self.head = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 5))

    def forward(self, x):
        features = self.encoder(x).detach()  # <- bites: left in from a look at the features
        return self.head(features)


teacher = torch.randn(12, 5)
model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

for step in range(1, 61):
    x = torch.randn(32, 12)
    loss = F.cross_entropy(model(x), (x @ teacher).argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
