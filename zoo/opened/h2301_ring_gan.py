# expect: healthy
# symptom: discriminator loss climbs by half and both adversarial losses wobble without settling (looks like a failing GAN)
# axis: loss
"""Non-saturating GAN with R1 penalty (lazy, every 4 steps) on a ring of eight Gaussians."""

import math
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(31)


def ring(n):
    k = torch.randint(0, 8, (n,))
    ang = 2 * math.pi * k / 8
    return torch.stack([ang.cos(), ang.sin()], 1) * 1.5 + 0.08 * torch.randn(n, 2)


def net(sizes, act):
    out = []
    for a, b in zip(sizes[:-2], sizes[1:-1]):
        out += [nn.Linear(a, b), act()]
    return nn.Sequential(*out, nn.Linear(sizes[-2], sizes[-1]))


class Generator(nn.Module):
    z_dim = 8

    def __init__(self):
        super().__init__()
        self.body = net([self.z_dim, 128, 128, 2], nn.ReLU)

    def forward(self, n):
        return self.body(torch.randn(n, self.z_dim))


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("freq", torch.tensor([1.0, 2.0, 4.0]))
        self.body = net([2 + 12, 128, 128, 1], lambda: nn.LeakyReLU(0.2))

    def forward(self, x):
        w = (x[..., None] * self.freq).flatten(1)
        return self.body(torch.cat([x, w.sin(), w.cos()], 1)).squeeze(1)


def r1_penalty(d, x):
    x = x.detach().requires_grad_(True)
    (g,) = torch.autograd.grad(d(x).sum(), x, create_graph=True)
    return g.square().sum(1).mean()


def energy_distance(a, b):
    return (2 * torch.cdist(a, b).mean() - torch.cdist(a, a).mean() - torch.cdist(b, b).mean()).item()


@torch.no_grad()
def assess(gen, n=2400):
    x = gen(n)
    ang = 2 * math.pi * torch.arange(8) / 8
    modes = torch.stack([ang.cos(), ang.sin()], 1) * 1.5
    d, k = torch.cdist(x, modes).min(1)
    good = d < 0.25
    covered = torch.bincount(k[good], minlength=8).gt(50).sum().item()
    return energy_distance(x, ring(n)), good.float().mean().item(), covered


def main(steps=900, batch=384, r1_every=4, r1_gamma=0.02):
    g, d = Generator(), Discriminator()
    avg = Generator()
    avg.load_state_dict(g.state_dict())
    og = torch.optim.Adam(g.parameters(), lr=2e-3, betas=(0.0, 0.99))
    od = torch.optim.Adam(d.parameters(), lr=2e-3, betas=(0.0, 0.99))
    for step in range(1, steps + 1):
        real = ring(batch)
        with torch.no_grad():
            fake = g(batch)
        loss_d = F.softplus(-d(real)).mean() + F.softplus(d(fake)).mean()
        total = loss_d
        if step % r1_every == 0:
            total = total + 0.5 * r1_gamma * r1_every * r1_penalty(d, real)
        od.zero_grad()
        total.backward()
        od.step()

        d.requires_grad_(False)
        loss_g = F.softplus(-d(g(batch))).mean()
        og.zero_grad()
        loss_g.backward()
        og.step()
        d.requires_grad_(True)

        with torch.no_grad():
            k = min(0.99, step / (step + 10))
            for pa, p in zip(avg.parameters(), g.parameters()):
                pa.lerp_(p, 1 - k)
        if step % 30 == 0:
            print(f"step {step:4d}  D {loss_d.item():.3f}  G {loss_g.item():.3f}")
        if step % 100 == 0:
            e, frac, cov = assess(avg)
            print(f"      energy distance {e:.4f}  on-mode {frac:.2f}  modes {cov}/8", flush=True)


if __name__ == "__main__":
    main()
