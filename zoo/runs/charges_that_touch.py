"""From step 140 on some charges lie all but on top of each other, and the model divides by their distance.

Modelled on force fields and on weights by inverse distance, whose loss jumps by orders of magnitude while every
coordinate lies in its usual range: cause amplifying-operation. Mended: the distance has a floor.
"""

import sys

import torch
from torch import nn

FIXED = "--fixed" in sys.argv
ROWS, CHARGES, FLOOR = 32, 6, 0.2
torch.manual_seed(0)
torch.set_num_threads(1)


def molecules(step):
    """Points around a first one with a kind each, and the potential of a soft core at the first."""
    angles = 6.3 * torch.rand(ROWS, CHARGES)
    away = torch.rand(ROWS, CHARGES) + 0.5
    places = torch.stack([away * angles.cos(), away * angles.sin()], dim=-1)
    places[:, 0] = 0.0
    if step >= 140:
        places[:2, 1] = places[:2, 0] + 1e-4 * torch.randn(2, 2)
    kinds = torch.randint(3, (ROWS, CHARGES))
    apart = (places[:, 1:] - places[:, :1]).norm(dim=-1)
    potential = (torch.tensor([1.0, -0.5, 0.25])[kinds[:, 1:]] / apart.clamp(min=FLOOR)).sum(1)
    return places, kinds, potential


class Potential(nn.Module):
    def __init__(self):
        super().__init__()
        self.kinds = nn.Embedding(3, 16)
        self.charge = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1))

    def forward(self, places, kinds):
        apart = (places[:, 1:] - places[:, :1]).norm(dim=-1)
        if FIXED:
            apart = apart.clamp(min=FLOOR)
        charges = self.charge(self.kinds(kinds[:, 1:])).squeeze(-1)
        return (charges / apart).sum(1)


model = Potential()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

for step in range(1, 221):
    places, kinds, potential = molecules(step)
    loss = nn.functional.mse_loss(model(places, kinds), potential)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f}")
