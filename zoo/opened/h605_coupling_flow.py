# expect: healthy
# symptom: the loss goes negative and jumps up every so often (resembles a wrong-signed loss and instability)
# axis: loss
# cause: the negative log-likelihood of a continuous density may be below zero, and the jumps are the intended warm restarts of the learning rate; held-out likelihood improves throughout
# says: none
# onset_step: none
# fix: none
# mended: none
import math

import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(4)


def sensor_readings(n, gen):
    """Four correlated channels around a thin curved manifold."""
    u = torch.rand(n, generator=gen) * 2 - 1
    v = torch.rand(n, generator=gen) * 2 - 1
    e = 0.04 * torch.randn(n, 4, generator=gen)
    return torch.stack([u, 0.5 * u**2 + 0.2 * v, torch.sin(2 * v), 0.4 * u * v], 1) + e


class Coupling(nn.Module):
    def __init__(self, dim, flip, hidden=64):
        super().__init__()
        self.flip, self.half = flip, dim // 2
        self.net = nn.Sequential(
            nn.Linear(self.half, hidden),
            nn.Tanh(),
            nn.Linear(hidden, hidden),
            nn.Tanh(),
            nn.Linear(hidden, 2 * (dim - self.half)),
        )
        nn.init.zeros_(self.net[-1].weight)
        nn.init.zeros_(self.net[-1].bias)

    def forward(self, x):
        a, b = x[:, : self.half], x[:, self.half :]
        if self.flip:
            a, b = b, a
        s, t = self.net(a).chunk(2, 1)
        s = 2 * torch.tanh(s)
        b = b * s.exp() + t
        out = torch.cat([b, a] if self.flip else [a, b], 1)
        return out, s.sum(1)


class Permute(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.register_buffer("order", torch.randperm(dim))

    def forward(self, x):
        return x[:, self.order], x.new_zeros(len(x))


class Flow(nn.Module):
    def __init__(self, dim=4, depth=6):
        super().__init__()
        layers = []
        for i in range(depth):
            layers += [Coupling(dim, i % 2 == 1), Permute(dim)]
        self.layers = nn.ModuleList(layers)
        self.dim = dim

    def log_prob(self, x):
        logdet = x.new_zeros(len(x))
        for layer in self.layers:
            x, ld = layer(x)
            logdet = logdet + ld
        return -0.5 * (x**2).sum(1) - 0.5 * self.dim * math.log(2 * math.pi) + logdet


def main():
    gen = torch.Generator().manual_seed(0)
    held_out = sensor_readings(2000, gen)
    flow = Flow()
    opt = torch.optim.Adam(flow.parameters(), lr=4e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, T_0=100, T_mult=2, eta_min=1e-5)
    for step in range(1, 701):
        loss = -flow.log_prob(sensor_readings(256, gen)).mean()
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(flow.parameters(), 5.0)
        opt.step()
        sched.step()
        if step % 25 == 0:
            print(f"step {step} nll {loss.item():.4f} lr {opt.param_groups[0]['lr']:.5f}", flush=True)
        if step % 100 == 0:
            with torch.no_grad():
                print(f"step {step} held-out nll {-flow.log_prob(held_out).mean().item():.4f}", flush=True)


if __name__ == "__main__":
    main()
