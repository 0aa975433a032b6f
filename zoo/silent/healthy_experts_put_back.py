"""A mixture of experts that sorts the rows by expert and puts the results back."""

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
        order = chosen.argsort(stable=True)
        sizes = torch.bincount(chosen, minlength=len(self.experts)).tolist()
        results = [expert(rows).squeeze(-1) for expert, rows in zip(self.experts, x[order].split(sizes), strict=True)]
        joined = torch.cat(results) * share[order]
        return torch.empty_like(joined).index_copy(0, order, joined)


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
