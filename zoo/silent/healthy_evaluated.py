"""Healthy: evaluated in evaluation mode, then with sixteen samples of dropout; a teacher runs in training mode."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(16, 64), nn.BatchNorm1d(64), nn.Linear(64, 4)

    def forward(self, x):
        hidden = F.relu(self.norm(self.first(x)))
        hidden = F.dropout(hidden, 0.2, self.training)
        if self.training:
            hidden = F.dropout(hidden, 0.1)
        return self.last(hidden)


model = Net()
teacher = copy.deepcopy(model).requires_grad_(False)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
validation = torch.randn(64, 16)

for step in range(1, 81):
    model.train()
    x = torch.randn(32, 16)
    with torch.no_grad():
        wanted = teacher(x).softmax(1)
    scores = model(x)
    loss = F.cross_entropy(scores, x[:, :4].argmax(1)) + 0.1 * F.mse_loss(scores.softmax(1), wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for slow, fast in zip(teacher.parameters(), model.parameters(), strict=True):
            slow.lerp_(fast, 0.05)
    if step % 10 == 0:
        model.eval()
        with torch.no_grad():
            model(validation)
        model.train()
        with torch.no_grad():
            samples = torch.stack([model(validation) for _ in range(16)])
