# expect: healthy
# symptom: the loss becomes negative and keeps sinking, the batch size jumps sixteenfold now and then and the optimizer uses only signs (density of a continuous flow, all in order)
# axis: loss
"""Normalizing flow for joint angles of a robot arm, Lion optimizer, occasional replay batches."""

import argparse
import math

import torch
from torch import nn

torch.set_num_threads(1)


class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-4, betas=(0.9, 0.98), weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if "m" not in state:
                    state["m"] = torch.zeros_like(p)
                m = state["m"]
                direction = (b1 * m + (1 - b1) * p.grad).sign_()
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(direction, alpha=-group["lr"])
                m.mul_(b2).add_(p.grad, alpha=1 - b2)


class Coupling(nn.Module):
    def __init__(self, dim, hidden, flip):
        super().__init__()
        mask = torch.arange(dim) % 2 == (1 if flip else 0)
        self.register_buffer("mask", mask.float())
        self.net = nn.Sequential(
            nn.Linear(dim, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU(), nn.Linear(hidden, 2 * dim)
        )
        nn.init.zeros_(self.net[-1].weight)
        nn.init.zeros_(self.net[-1].bias)

    def forward(self, x):
        s, t = self.net(x * self.mask).chunk(2, dim=-1)
        s = 1.5 * torch.tanh(s) * (1 - self.mask)
        t = t * (1 - self.mask)
        return x * torch.exp(s) + t, s.sum(-1)


class Flow(nn.Module):
    def __init__(self, dim=6, hidden=96, depth=8):
        super().__init__()
        self.dim = dim
        self.layers = nn.ModuleList(Coupling(dim, hidden, k % 2 == 1) for k in range(depth))

    def log_prob(self, x):
        logdet = x.new_zeros(len(x))
        for layer in self.layers:
            x, ld = layer(x)
            logdet = logdet + ld
        base = -0.5 * (x * x).sum(-1) - 0.5 * self.dim * math.log(2 * math.pi)
        return base + logdet


def arm_angles(n, gen):
    """Six joint angles close to a curved two-dimensional sheet."""
    u = 2 * torch.rand(n, 2, generator=gen) - 1
    a, b = u[:, 0], u[:, 1]
    clean = torch.stack([a, torch.sin(2 * a), b, torch.cos(2 * b) - 0.5, 0.7 * a * b, 0.5 * (a - b)], dim=1)
    return clean + 0.05 * torch.randn(n, 6, generator=gen)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=700)
    parser.add_argument("--lr", type=float, default=4e-4)
    args = parser.parse_args()

    torch.manual_seed(23)
    gen = torch.Generator().manual_seed(24)
    test = arm_angles(2000, torch.Generator().manual_seed(25))
    flow = Flow()
    opt = Lion(flow.parameters(), lr=args.lr, weight_decay=0.05)
    for step in range(1, args.steps + 1):
        for group in opt.param_groups:
            group["lr"] = args.lr * (0.03 + 0.97 * 0.5 * (1 + math.cos(math.pi * step / args.steps)))
        size = 2048 if step % 40 == 0 else 128
        loss = -flow.log_prob(arm_angles(size, gen)).mean()
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(flow.parameters(), 20.0)
        opt.step()
        if step % 25 == 0 or step == 1:
            print(f"step {step:4d} batch {size:5d} nll {loss.item():8.4f}")
        if step % 175 == 0:
            with torch.no_grad():
                print(f"          test nll {-flow.log_prob(test).mean().item():.4f}")


if __name__ == "__main__":
    main()
