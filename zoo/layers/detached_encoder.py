"""The encoder's output is detached for a plot, and goes on into the head so: the encoder never learns."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(32, 64), nn.ReLU())
        self.head = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
        self.for_plot = None

    def forward(self, inputs):
        code = self.encoder(inputs).detach()
        self.for_plot = code
        return self.head(code)


centers = torch.randn(10, 32)
model = Classifier()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

for step in range(1, 401):
    labels = torch.randint(10, (64,))
    inputs = centers[labels] + 2 * torch.randn(64, 32)
    loss = F.cross_entropy(model(inputs), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
