"""A functional dropout without `training`: `eval()` does not turn it off."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(16, 64), nn.Linear(64, 4)

    def forward(self, x):
        return self.last(F.dropout(F.relu(self.first(x)), 0.3))  # <- bites: self.training is not given


model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

for step in range(1, 81):
    model.train()
    x = torch.randn(32, 16)
    loss = F.cross_entropy(model(x), x[:, :4].argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        model.eval()
        with torch.no_grad():
            for _ in range(4):
                model(torch.randn(16, 16))
