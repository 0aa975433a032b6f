"""Eight experts, inputs that are not centered and no balancing: the router sends all tokens to one expert."""

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
        share, chosen = self.router(tokens).softmax(-1).max(-1)
        out = torch.zeros_like(tokens)
        for number, expert in enumerate(self.experts):
            here = chosen == number
            if here.any():
                out[here] = share[here].unsqueeze(-1) * expert(tokens[here])
        return tokens + out


centers = torch.randn(10, WIDTH)
mixture, head = Mixture(), nn.Linear(WIDTH, 10)
model = nn.Sequential(mixture, head)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

for step in range(1, 501):
    labels = torch.randint(10, (64,))
    loss = F.cross_entropy(model(4.0 + centers[labels] + 2.0 * torch.randn(64, WIDTH)), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
