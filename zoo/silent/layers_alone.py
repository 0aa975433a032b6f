"""The activation is made in `__init__`, and `forward` does not call it: the model is linear, the task is not."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(2, 64), nn.Linear(64, 64), nn.Linear(64, 2)
        self.act, self.drop = nn.GELU(), nn.Dropout(0.1)

    def forward(self, x):
        x = self.drop(self.first(x))
        x = self.drop(self.second(x))  # <- bites
        return self.last(x)


points = torch.rand(2048, 2) * 2 - 1
quadrants = (points.prod(1) > 0).long()
model = Classifier()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for step in range(1, 161):
    batch = torch.randint(0, 2048, (64,))
    loss = F.cross_entropy(model(points[batch]), quadrants[batch])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 0:
        print(f"step {step}  loss {loss.item():.3f}")
