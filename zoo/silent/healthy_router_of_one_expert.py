"""A sparse mixture chooses one expert a row, and keeps the probability of the choice as its gate."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class Mixture(nn.Module):
    def __init__(self, width: int = 8, experts: int = 4) -> None:
        super().__init__()
        self.router = nn.Linear(width, experts)
        self.slopes = nn.Parameter(0.1 * torch.randn(experts, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, chosen = self.router(x).softmax(-1).topk(1, dim=-1)
        return (gate * (x[:, None] * self.slopes[chosen]).sum(-1)).sum(-1)


centres, slopes = 2.0 * torch.randn(4, 8), torch.randn(4, 8)
model = Mixture()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for step in range(160):
    region = torch.randint(4, (128,))
    x = centres[region] + torch.randn(128, 8)
    loss = ((model(x) - (x * slopes[region]).sum(-1)) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(step, loss.item())
