"""The list of blocks is made by a product: it holds one block four times."""

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
        self.blocks = nn.ModuleList([Block(width)] * depth)  # <- bites
        self.last = nn.Linear(width, 1)

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.last(x)


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
