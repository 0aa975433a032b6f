# Contrastive learning of two views (InfoNCE, a learned temperature), RMSprop. A home-made schedule was to take one per cent off the rate
# at each step from step 250 on; it puts two per cent on.
import argparse

import torch
from torch import nn
from torch.nn.functional import cross_entropy, normalize

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--twin", action="store_true")
flags = parser.parse_args()

STEPS = 600
rng = torch.Generator().manual_seed(555)
mix_a = torch.randn(10, 60, generator=rng) / 3
mix_b = torch.randn(10, 60, generator=rng) / 3


def views(n, g=None):
    z = torch.randn(n, 10, generator=g)
    a = torch.tanh(z @ mix_a) + 0.7 * torch.randn(n, 60, generator=g)
    b = torch.sin(1.3 * z @ mix_b) + 0.7 * torch.randn(n, 60, generator=g)
    return a, b


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = self.arm(), self.arm()
        self.log_t = nn.Parameter(torch.tensor(2.0))

    @staticmethod
    def arm():
        return nn.Sequential(
            nn.Linear(60, 160),
            nn.LayerNorm(160),
            nn.GELU(),
            nn.Linear(160, 160),
            nn.LayerNorm(160),
            nn.GELU(),
            nn.Linear(160, 24),
        )

    def forward(self, a, b):
        sim = normalize(self.left(a), dim=1) @ normalize(self.right(b), dim=1).T
        sim = sim * self.log_t.exp()
        target = torch.arange(len(a))
        return (cross_entropy(sim, target) + cross_entropy(sim.T, target)) / 2


val = views(512, rng)
torch.manual_seed(flags.seed)
pair = Pair()
optimizer = torch.optim.RMSprop(pair.parameters(), lr=1e-3, alpha=0.98)
for step in range(STEPS):
    if step >= 250:
        optimizer.param_groups[0]["lr"] *= 0.99 if flags.twin else 1.02
    loss = pair(*views(192))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 60 == 0:
        print("step", step, "loss", loss.item(), "rate", optimizer.param_groups[0]["lr"])

pair.eval()
with torch.no_grad():
    print("final:", pair(*val).item())
