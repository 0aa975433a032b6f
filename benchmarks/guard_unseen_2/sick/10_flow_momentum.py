# Coupling flow in the plane, SGD. Fault: at step 500 a changed config sets the momentum to 0.999 at an unchanged rate.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--twin", action="store_true")
args = ap.parse_args()
fixed = torch.Generator().manual_seed(20)


def points(n, g=None):
    side = torch.randint(0, 2, (n,), generator=g).float() * 2 - 1
    t = torch.rand(n, generator=g) * 3.14
    z = torch.stack([t.cos() + side * 0.5, side * t.sin()], 1)
    return z + torch.randn(n, 2, generator=g) * 0.15


class Coupling(nn.Module):
    def __init__(self, flip):
        super().__init__()
        self.flip = flip
        self.net = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 2))

    def forward(self, z):
        keep, move = (z[:, 1:], z[:, :1]) if self.flip else (z[:, :1], z[:, 1:])
        s, t = self.net(keep).chunk(2, 1)
        s = torch.tanh(s)
        moved = move * s.exp() + t
        return torch.cat([moved, keep] if self.flip else [keep, moved], 1), s[:, 0]


class Flow(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Coupling(i % 2) for i in range(6)])

    def forward(self, z):
        logdet = 0.0
        for layer in self.layers:
            z, s = layer(z)
            logdet = logdet + s
        return (0.5 * z.pow(2).sum(1) + 1.838 - logdet).mean()


test = points(3000, fixed)
torch.manual_seed(args.seed)
model = Flow()
opt = torch.optim.SGD(model.parameters(), lr=0.003, momentum=0.9)
for step in range(700):
    if step == 500 and not args.twin:
        opt.param_groups[0]["momentum"] = 0.999
    loss = model(points(128))
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 0:
        print(step, f"{loss.item():.4f}")
model.eval()
with torch.no_grad():
    print("final:", model(test).item())
