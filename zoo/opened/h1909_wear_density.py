# expect: healthy
# symptom: resembles a flow with a miscounted log-determinant: the negative log-likelihood is far below zero and keeps falling
# axis: loss
# cause: none
# says: none
# onset_step: none
# fix: none
# mended: no
import math
import torch
from torch import nn


def wear_measurements(n, gen):
    """Tool wear in metres: values of a few tenths of a millimetre."""
    load = torch.rand(n, generator=gen)
    a = 2e-4 * (1 + load**2) + 2e-5 * torch.randn(n, generator=gen)
    b = 1e-4 * torch.sin(3 * load) + 0.4 * a + 1e-5 * torch.randn(n, generator=gen)
    side = (torch.rand(n, generator=gen) < 0.5).float() * 2 - 1
    c = 1.5e-4 * side + 0.3 * b + 1e-5 * torch.randn(n, generator=gen)
    d = a - b + side * 2e-5 + 1e-5 * torch.randn(n, generator=gen)
    return torch.stack([a, b, c, d], 1)


class DataScale(nn.Module):
    """Affine first layer, set from the first batch and then trained like the rest."""

    def __init__(self, dim):
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(dim))
        self.log_scale = nn.Parameter(torch.zeros(dim))

    @torch.no_grad()
    def initialise(self, x):
        self.shift.copy_(x.mean(0))
        self.log_scale.copy_(x.std(0).log())

    def forward(self, x):
        return (x - self.shift) * (-self.log_scale).exp(), -self.log_scale.sum()


class MaskedLinear(nn.Linear):
    def __init__(self, d_in, d_out, mask):
        super().__init__(d_in, d_out)
        self.register_buffer("mask", mask)

    def forward(self, x):
        return nn.functional.linear(x, self.weight * self.mask, self.bias)


class AutoregressiveLayer(nn.Module):
    def __init__(self, dim, hidden, reverse):
        super().__init__()
        rank = torch.arange(1, dim + 1)
        if reverse:
            rank = rank.flip(0)
        hid = torch.arange(hidden) % (dim - 1) + 1
        self.a = MaskedLinear(dim, hidden, (hid[:, None] >= rank[None]).float())
        self.b = MaskedLinear(hidden, hidden, (hid[:, None] >= hid[None]).float())
        self.c = MaskedLinear(hidden, 2 * dim, (rank.repeat(2)[:, None] > hid[None]).float())
        nn.init.zeros_(self.c.weight)
        nn.init.zeros_(self.c.bias)

    def forward(self, x):
        h = torch.tanh(self.b(torch.tanh(self.a(x))))
        shift, log_scale = self.c(h).chunk(2, 1)
        log_scale = 3 * torch.tanh(log_scale / 3)
        return (x - shift) * (-log_scale).exp(), -log_scale.sum(1)


class WearFlow(nn.Module):
    def __init__(self, dim=4, hidden=48, depth=4):
        super().__init__()
        self.scale = DataScale(dim)
        self.layers = nn.ModuleList(AutoregressiveLayer(dim, hidden, i % 2 == 1) for i in range(depth))

    def nll(self, x):
        z, logdet = self.scale(x)
        for layer in self.layers:
            z, ld = layer(z)
            logdet = logdet + ld
        log_base = -0.5 * (z.pow(2) + math.log(2 * math.pi)).sum(1)
        return -(log_base + logdet).mean()


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(12)
    train, val = wear_measurements(6000, gen), wear_measurements(1500, gen)
    flow = WearFlow()
    flow.scale.initialise(train[:512])
    opt = torch.optim.Adam(flow.parameters(), lr=2e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 600)
    for step in range(1, 601):
        loss = flow.nll(train[torch.randint(len(train), (160,))])
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(flow.parameters(), 10.0)
        opt.step()
        sched.step()
        if step % 40 == 0:
            with torch.no_grad():
                print(f"step {step} nll {loss.item():.3f} val nll {flow.nll(val).item():.3f}", flush=True)


if __name__ == "__main__":
    main()
