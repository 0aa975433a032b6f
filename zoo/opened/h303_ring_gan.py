# expect: healthy
# symptom: the discriminator's loss rises and the generator's wavers about ln 2 for the whole run; resembles a run that does not learn
# axis: loss
# cause: none: the two losses of a GAN balance each other; the samples come to lie on the ring
# says: (healthy|nothing (is )?wrong|no fault|no cause)
# onset_step: 0
# fix: none
# mended: the same
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

torch.set_num_threads(1)
torch.manual_seed(103)


def ring(n, modes=8):
    k = torch.randint(0, modes, (n,)) * 2 * math.pi / modes
    return torch.stack([k.cos(), k.sin()], 1) * 2 + 0.05 * torch.randn(n, 2)


def mlp(i, o, width=96, wrap=lambda m: m):
    return nn.Sequential(
        wrap(nn.Linear(i, width)),
        nn.LeakyReLU(0.2),
        wrap(nn.Linear(width, width)),
        nn.LeakyReLU(0.2),
        wrap(nn.Linear(width, o)),
    )


def quality(gen):
    with torch.no_grad():
        s = gen(torch.randn(1000, 8))
    k = torch.arange(8) * 2 * math.pi / 8
    centers = torch.stack([k.cos(), k.sin()], 1) * 2
    dist, mode = torch.cdist(s, centers).min(1)
    good = dist < 0.4
    return good.float().mean().item(), mode[good].unique().numel()


def main():
    gen, disc = mlp(8, 2), mlp(2, 1, wrap=spectral_norm)
    opt_g = torch.optim.Adam(gen.parameters(), lr=1e-3, betas=(0.5, 0.9))
    opt_d = torch.optim.Adam(disc.parameters(), lr=2e-3, betas=(0.5, 0.9))
    for step in range(1, 701):
        real = ring(128)
        fake = gen(torch.randn(128, 8))
        d_loss = F.softplus(-disc(real) * 4).mean() + F.softplus(disc(fake.detach()) * 4).mean()
        opt_d.zero_grad()
        d_loss.backward()
        opt_d.step()

        g_loss = F.softplus(-disc(fake) * 4).mean()
        opt_g.zero_grad()
        g_loss.backward()
        opt_g.step()
        if step % 50 == 0:
            near, modes = quality(gen)
            print(f"step {step} d {d_loss.item():.3f} g {g_loss.item():.3f} on the ring {near:.2f} modes {modes}")


if __name__ == "__main__":
    main()
