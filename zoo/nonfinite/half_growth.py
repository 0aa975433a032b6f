"""A residual stream in float16 that grows from step to step: the second projection of a block passes 65504.

Modelled on transformers#5651: T5, trained in bfloat16, fine-tuned in float16; `wo` gave 66246.39.
"""

import torch
from torch import nn


class FeedForward(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.wi = nn.Linear(width, 4 * width, bias=False)
        self.wo = nn.Linear(4 * width, width, bias=False)

    def forward(self, hidden):
        return self.wo(torch.relu(self.wi(hidden)))  # <- bites


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mlp = FeedForward(width)

    def forward(self, hidden):
        return hidden + self.mlp(self.norm(hidden))


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.blocks = nn.Sequential(*(Block(width) for _ in range(4)))
        self.head = nn.Linear(width, 1)

    def forward(self, hidden):
        return self.head(self.blocks(hidden) / 1000)


torch.manual_seed(0)
model = Model(16)
with torch.no_grad():
    model.blocks[3].mlp.wo.weight.mul_(25000.0)
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)

for step in range(1, 11):
    hidden = torch.randn(8, 5, 16)
    with torch.autocast("cpu", dtype=torch.float16):
        outputs = model(hidden)
    loss = -outputs.float().abs().mean()  # nothing bounds it
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
