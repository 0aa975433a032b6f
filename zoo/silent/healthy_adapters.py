"""The base is frozen, then adapters are put in."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class LoRA(nn.Module):
    def __init__(self, base, rank=4):
        super().__init__()
        self.base = base
        self.lora_a = nn.Parameter(torch.randn(rank, base.in_features) / base.in_features**0.5)
        self.lora_b = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x):
        return self.base(x) + F.linear(F.linear(x, self.lora_a), self.lora_b)


model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 4))
model.requires_grad_(False)
for place in (0, 2):
    model[place] = LoRA(model[place])
model[4] = nn.Linear(32, 4)
optimizer = torch.optim.Adam([one for one in model.parameters() if one.requires_grad], lr=3e-3)
rule = torch.randn(16, 4)

for step in range(1, 161):
    x = torch.randn(64, 16)
    loss = F.cross_entropy(model(x), (x @ rule).argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
