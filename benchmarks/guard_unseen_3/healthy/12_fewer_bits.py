# Quantization-aware training in phases, Adafactor: full precision, 8 bits from step 200 on, 4 bits from 350 on, 2 bits from 500 on
# (straight-through). The loss steps up and comes down again.
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()
fixed = torch.Generator().manual_seed(342)
proto = torch.randn(8, 24, generator=fixed) * 0.7
bits = None


def draw(n, g=None):
    y = torch.randint(0, 8, (n,), generator=g)
    return proto[y] + torch.randn(n, 24, generator=g), y


class QuantLinear(nn.Linear):
    def forward(self, x):
        w = self.weight
        if bits:
            top = 2 ** (bits - 1) - 0.5
            s = w.detach().abs().amax() / top
            w = w + (((w / s - 0.5).round() + 0.5) * s - w).detach()
        return F.linear(x, w, self.bias)


test_x, test_y = draw(3000, fixed)
torch.manual_seed(args.seed)
net = nn.Sequential(QuantLinear(24, 48), nn.ReLU(), QuantLinear(48, 48), nn.ReLU(), QuantLinear(48, 8))
opt = torch.optim.Adafactor(net.parameters(), lr=5e-3)
for step in range(800):
    bits = {200: 8, 350: 4, 500: 2}.get(step, bits)
    x, y = draw(48)
    loss = F.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 0:
        print(f"step {step} bits {bits} loss {loss.item():.4f}")
with torch.no_grad():
    print("final:", F.cross_entropy(net(test_x), test_y).item())
