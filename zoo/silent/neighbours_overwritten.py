"""Messages of the neighbours overwrite each other in place of being summed."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

NODES, EDGES = 60, 240


class Round(nn.Module):
    def __init__(self):
        super().__init__()
        self.message = nn.Linear(8, 16)
        self.out = nn.Linear(16, 1)

    def forward(self, features, src, dst):
        message = self.message(features[src] - features[dst]).relu()
        total = torch.zeros(len(features), 16)
        total[dst] += message  # <- bites: of several messages to one node only one is kept
        return self.out(total).squeeze(1)


model = Round()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(200):
    features = torch.randn(NODES, 8)
    src, dst = torch.randint(0, NODES, (2, EDGES))
    truth = torch.zeros(NODES).index_add_(0, dst, (features[src] - features[dst])[:, 0].abs())
    loss = nn.functional.mse_loss(model(features, src, dst), truth)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 49:
        print(f"step {step + 1}  loss {loss.item():.4f}")
