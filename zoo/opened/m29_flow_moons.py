# expect: sick
# symptom: the loss falls a part of the way or begins far too high, and stays there
# axis: loss
# cause: a term is summed over the whole batch and added to the value of each row, so it counts as often as there are rows
# says: sum|batch|row
# onset_step: 0
# fix: sum the term per row
# mended: yes
import os
import math

import torch
import torch.nn as nn

MENDED = os.environ.get("MENDED") == "1"


class Coupling(nn.Module):
    def __init__(self, dim, hidden, swap):
        super().__init__()
        self.half, self.swap = dim // 2, swap
        self.net = nn.Sequential(
            nn.Linear(self.half, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, 2 * (dim - self.half)),
        )
        nn.init.zeros_(self.net[-1].weight)
        nn.init.zeros_(self.net[-1].bias)

    def forward(self, x):
        a, b = x[:, : self.half], x[:, self.half :]
        if self.swap:
            a, b = b, a
        s, t = self.net(a).chunk(2, dim=1)
        s = torch.tanh(s)
        b = b * s.exp() + t
        z = torch.cat([b, a] if self.swap else [a, b], dim=1)
        return z, s.sum(dim=1) if MENDED else s.sum()


class Flow(nn.Module):
    def __init__(self, dim=4, depth=4, hidden=32):
        super().__init__()
        self.dim = dim
        self.layers = nn.ModuleList(Coupling(dim, hidden, i % 2 == 1) for i in range(depth))

    def log_prob(self, x):
        log_det = 0.0
        for layer in self.layers:
            x, ld = layer(x)
            log_det = log_det + ld
        base = -0.5 * (x**2).sum(dim=1) - 0.5 * self.dim * math.log(2 * math.pi)
        return base + log_det


def moons(n):
    theta = math.pi * torch.rand(n)
    upper = torch.rand(n) < 0.5
    x = torch.where(upper, theta.cos(), 1 - theta.cos())
    y = torch.where(upper, theta.sin(), 0.5 - theta.sin())
    base = torch.stack([x, y], 1) + 0.05 * torch.randn(n, 2)
    return torch.cat([base, base.flip(1) * 0.5 + 0.1 * torch.randn(n, 2)], 1)


def main():
    torch.manual_seed(14)
    data = moons(4000)
    data = (data - data.mean(0)) / data.std(0)
    flow = Flow()
    opt = torch.optim.Adam(flow.parameters(), lr=1e-3)
    for step in range(1, 51):
        batch = data[torch.randint(0, len(data), (128,))]
        loss = -flow.log_prob(batch).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 10 == 0:
            print(f"step {step:2d}  nll {loss.item():.4f}")


if __name__ == "__main__":
    main()
