"""A mixture of experts whose results stay sorted by expert."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class Experts(nn.Module):
    def __init__(self, width, count):
        super().__init__()
        self.router = nn.Linear(width, count)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 32), nn.Tanh(), nn.Linear(32, 1)) for _ in range(count)
        )

    def forward(self, x):
        share, chosen = self.router(x).softmax(-1).max(-1)
        results = []
        for number, expert in enumerate(self.experts):
            rows = chosen == number
            results.append(expert(x[rows]).squeeze(-1) * share[rows])
        return torch.cat(results)  # <- bites


model = Experts(6, 4)
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
mix = torch.randn(6, 4)
for step in range(1, 161):
    x = torch.randn(128, 6)
    y = torch.where(x[:, 0] > 0, (x @ mix).sin().sum(1), x[:, 1] * x[:, 2])
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 0:
        print(f"step {step}  loss {loss.item():.3f}")
