"""A mixture of eight experts whose router has no balancing term and a bias from its start: one expert gets all tokens.

Modelled on minimind#567 and KempnerForge#117 (router logits that grow, one expert): cause router-collapse. Mended: a
balancing loss, and a router without the bias.
"""

import sys

import torch
import torch.nn.functional as F
from parts.digits import digits
from torch import nn

FIXED = "--fixed" in sys.argv
EXPERTS, WIDTH = 8, 32
torch.manual_seed(0)
torch.set_num_threads(1)


class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Linear(WIDTH, EXPERTS)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, 32), nn.ReLU(), nn.Linear(32, WIDTH)) for _ in range(EXPERTS)
        )
        if not FIXED:
            nn.init.constant_(self.router.bias[:1].data, 2.0)

    def forward(self, x):
        shares = self.router(x).softmax(-1)
        weight, chosen = shares.max(-1)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            here = chosen == number
            if here.any():
                out[here] = weight[here, None] * expert(x[here])
        used = F.one_hot(chosen, EXPERTS).float().mean(0)
        return x + out, EXPERTS * (used * shares.mean(0)).sum()


(images, labels), _ = digits()
body, mixture, head = nn.Linear(64, WIDTH), Mixture(), nn.Linear(WIDTH, 10)
model = nn.ModuleList([body, mixture, head])
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

for step in range(1, 301):
    rows = torch.randint(len(images), (64,))
    x, balance = mixture(body(images[rows]))
    loss = F.cross_entropy(head(x), labels[rows])
    if FIXED:
        loss = loss + 0.1 * balance
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step} loss {loss.item():.4f}")
