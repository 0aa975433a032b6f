"""Healthy: classes of very unequal frequency, but a balancing loss sees to it that each expert gets tokens."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

EXPERTS, WIDTH = 8, 24


class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Linear(WIDTH, EXPERTS)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, 32), nn.ReLU(), nn.Linear(32, WIDTH)) for _ in range(EXPERTS)
        )

    def forward(self, tokens):
        shares = self.router(tokens).softmax(-1)
        share, chosen = shares.max(-1)
        out = torch.zeros_like(tokens)
        for number, expert in enumerate(self.experts):
            here = chosen == number
            if here.any():
                out[here] = share[here].unsqueeze(-1) * expert(tokens[here])
        load = torch.bincount(chosen, minlength=EXPERTS) / len(tokens)
        self.imbalance = EXPERTS * (load * shares.mean(0)).sum()
        return tokens + out


often = 0.5 ** torch.arange(10)
centers = torch.randn(10, WIDTH)
mixture, head = Mixture(), nn.Linear(WIDTH, 10)
model = nn.Sequential(mixture, head)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

for step in range(1, 501):
    labels = torch.multinomial(often, 64, replacement=True)
    loss = F.cross_entropy(model(centers[labels] + 2.0 * torch.randn(64, WIDTH)), labels) + 0.02 * mixture.imbalance
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
