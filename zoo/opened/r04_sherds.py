# expect: sick
# axis: model
# symptom: the loss falls steadily and then is NaN from one step on, to the end
# cause: after each step the last coordinate of every prototype is set to sqrt(1 - sum of the squares of the others); once an update carries the others beyond norm 1 this is the root of a negative number, a NaN weight
# says: (sqrt|square.?root|root).{0,200}(negativ|below (0|zero)|less than (0|zero)|< ?0|nan|domain)|negativ.{0,120}(sqrt|square.?root|root)|(prototype|proxy|proxies|anchor|hemisphere|sphere|projection|project).{0,250}(negativ|nan|outside|beyond|exceed)
# onset_step: 60
# fix: clamp before the square root
# mended: the prototypes are brought back onto the sphere by dividing by their norm
import os

import numpy as np
import torch
from torch import nn

ALT = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)

KINDS = 24
DIM = 6


def sherds(n, world, g):
    """Chemical fingerprints (30 readings) of pottery from 24 kilns."""
    kind = g.integers(KINDS, size=n)
    x = world[kind] + 1.4 * g.normal(size=(n, 30))
    x[:, ::5] = np.tanh(x[:, ::5])
    return torch.tensor(x, dtype=torch.float32), torch.tensor(kind)


class Kilns(nn.Module):
    """Sherds and kilns meet as points on the unit sphere; kilns lie on its upper half."""

    def __init__(self, sharp=8.0):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(30, 128), nn.GELU(), nn.Linear(128, 128), nn.GELU(), nn.Linear(128, DIM))
        self.points = nn.Parameter(0.12 * torch.randn(KINDS, DIM))
        self.sharp = sharp
        self.settle()

    def forward(self, x):
        return self.sharp * nn.functional.normalize(self.body(x), dim=1) @ self.points.t()

    @torch.no_grad()
    def settle(self):
        p = self.points
        if ALT:
            p[:, -1].abs_()
            p.div_(p.norm(dim=1, keepdim=True))
        else:
            p[:, -1] = (1 - p[:, :-1].pow(2).sum(1)).sqrt()


def fit(net, data, g, steps, batch=96):
    x, y = data
    opt = torch.optim.Adam(
        [
            {"params": net.body.parameters(), "lr": 2e-3},
            {"params": [net.points], "lr": 1.5e-2},
        ]
    )
    seen = []
    for n in range(1, steps + 1):
        pick = torch.from_numpy(g.integers(len(x), size=batch))
        loss = nn.functional.cross_entropy(net(x[pick]), y[pick])
        opt.zero_grad()
        loss.backward()
        opt.step()
        net.settle()
        seen.append(loss.item())
        if n % 20 == 0:
            print(f"step {n:4d}  loss {np.mean(seen[-20:]):.4f}", flush=True)


@torch.no_grad()
def check(net, data):
    x, y = data
    out = net(x)
    print(
        f"held out loss {nn.functional.cross_entropy(out, y).item():.4f}  right {(out.argmax(1) == y).float().mean().item():.3f}"
    )


if __name__ == "__main__":
    torch.manual_seed(51)
    g = np.random.default_rng(51)
    world = 1.2 * g.normal(size=(KINDS, 30))
    net = Kilns()
    fit(net, sherds(3000, world, g), g, steps=500)
    check(net, sherds(600, world, g))
