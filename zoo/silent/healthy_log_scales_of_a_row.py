"""Each row's likelihood holds its own."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class Coupling(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 2))

    def forward(self, x):
        a, b = x.chunk(2, dim=1)
        scale, shift = self.net(a).chunk(2, dim=1)
        scale = torch.tanh(scale)
        return torch.cat([b * scale.exp() + shift, a], dim=1), scale.sum(dim=1)


layers = nn.ModuleList(Coupling() for _ in range(4))
optimizer = torch.optim.Adam(layers.parameters(), lr=2e-3)
for step in range(1, 121):
    a = torch.randn(64, 1)
    x = torch.cat([a, 0.5 * a**2 + 0.2 * torch.randn(64, 1)], dim=1)
    inside = 0.0
    for layer in layers:
        x, log_scale = layer(x)
        inside = inside + log_scale
    loss = -(-0.5 * x.pow(2).sum(1) + inside).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 0:
        print(f"step {step}  loss {loss.item():.3f}")
