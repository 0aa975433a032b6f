"""A list of blocks in which each is made, repeated activations, and a head that is shared by its name."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.wide, self.narrow = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.narrow(F.gelu(self.wide(self.norm(x))))


class Net(nn.Module):
    def __init__(self, width=32, depth=4):
        super().__init__()
        self.first = nn.Linear(12, width)
        self.blocks = nn.ModuleList([Block(width) for _ in range(depth)])
        self.smooth = nn.Sequential(*[nn.Tanh()] * 2)
        self.shared_heads = nn.ModuleList([nn.Linear(width, 1)] * 2)

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        x = self.smooth(x)
        return sum(head(x) for head in self.shared_heads)


rows = torch.randn(1024, 12)
targets = torch.sin(2 * rows[:, :1]) + rows[:, 1:2] * rows[:, 2:3]
model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for step in range(1, 161):
    batch = torch.randint(0, 1024, (32,))
    loss = F.mse_loss(model(rows[batch]), targets[batch])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 0:
        print(f"step {step}  loss {loss.item():.3f}")
