# expect: healthy
# symptom: the generator's loss rises and both losses jitter for hundreds of steps, which resembles a GAN whose discriminator wins
# axis: loss
"""A small conditional-free GAN that learns a ring of eight blobs; sample quality is tracked with mode coverage."""

import math

import torch
from torch import nn

torch.set_num_threads(1)

MODES = 8
LATENT = 6


def real_samples(n, gen):
    k = torch.randint(0, MODES, (n,), generator=gen)
    angle = 2 * math.pi * k / MODES
    centre = 2.0 * torch.stack([angle.cos(), angle.sin()], 1)
    return centre + 0.08 * torch.randn(n, 2, generator=gen)


class Generator(nn.Module):
    def __init__(self, width=160):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(LATENT, width),
            nn.LayerNorm(width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.LayerNorm(width),
            nn.ReLU(),
            nn.Linear(width, 2),
        )

    def forward(self, z):
        return self.body(z)


class Discriminator(nn.Module):
    """Looks at single points plus a few fixed harmonics of their position."""

    def __init__(self, width=160):
        super().__init__()
        self.register_buffer("freq", torch.tensor([1.0, 2.0, 4.0]))
        self.net = nn.Sequential(
            nn.Linear(14, width),
            nn.LeakyReLU(0.2),
            nn.Linear(width, width),
            nn.LeakyReLU(0.2),
            nn.Linear(width, 1),
        )

    def forward(self, x):
        h = (x[:, :, None] * self.freq).flatten(1)
        return self.net(torch.cat([x, h.sin(), h.cos()], 1)).squeeze(1)


def coverage(points):
    angle = 2 * math.pi * torch.arange(MODES) / MODES
    centre = 2.0 * torch.stack([angle.cos(), angle.sin()], 1)
    dist, near = torch.cdist(points, centre).min(1)
    good = dist < 0.4
    return len(set(near[good].tolist())), good.float().mean().item()


class Average:
    """Exponential moving average of the generator, used only for sampling."""

    def __init__(self, source, decay=0.99):
        self.decay = decay
        self.net = Generator()
        self.net.load_state_dict(source.state_dict())
        self.net.requires_grad_(False)

    def update(self, source):
        for mine, theirs in zip(self.net.parameters(), source.parameters()):
            mine.lerp_(theirs.detach(), 1 - self.decay)


def main():
    torch.manual_seed(0)
    data_gen = torch.Generator().manual_seed(17)
    g, d = Generator(), Discriminator()
    ema = Average(g)
    g_opt = torch.optim.Adam(g.parameters(), lr=5e-4, betas=(0.0, 0.99))
    d_opt = torch.optim.Adam(d.parameters(), lr=1e-3, betas=(0.0, 0.99))
    softplus = nn.functional.softplus

    for step in range(1, 901):
        real = real_samples(192, data_gen)
        fake = g(torch.randn(192, LATENT))

        d_loss = softplus(-d(real)).mean() + softplus(d(fake.detach())).mean()
        if step % 4 == 0:
            probe = real.clone().requires_grad_(True)
            (slope,) = torch.autograd.grad(d(probe).sum(), probe, create_graph=True)
            d_loss = d_loss + 4 * 0.01 * slope.square().sum(1).mean()
        d_opt.zero_grad()
        d_loss.backward()
        d_opt.step()

        g_loss = softplus(-d(fake)).mean()
        g_opt.zero_grad()
        g_loss.backward()
        g_opt.step()
        ema.update(g)

        if step % 60 == 0 or step == 1:
            with torch.no_grad():
                modes, quality = coverage(ema.net(torch.randn(1000, LATENT)))
            print(f"{step:4d} D {d_loss.item():.3f} G {g_loss.item():.3f} modes {modes}/8 on-target {quality:.2f}")


if __name__ == "__main__":
    main()
