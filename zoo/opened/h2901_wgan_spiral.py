# expect: healthy
# symptom: resembles a failing GAN: the generator loss wanders up and down with large swings, the critic loss is noisy and changes its sign
# axis: loss
"""WGAN-GP on point clouds shaped as a two-armed spiral; progress is judged by the sliced Wasserstein distance."""

import math
import time

import torch
from torch import nn, autograd

torch.set_num_threads(1)
torch.manual_seed(40)

Z, N_CRITIC, GP_WEIGHT, BATCH = 6, 2, 1.0, 256
ITERS = 300


def spiral(n, gen=None):
    r = torch.rand(n, generator=gen).sqrt()
    arm = torch.randint(0, 2, (n,), generator=gen).float() * math.pi
    phi = 3.5 * r + arm
    xy = torch.stack([r * torch.cos(phi), r * torch.sin(phi)], 1) * 2.0
    return xy + 0.05 * torch.randn(n, 2, generator=gen) + torch.tensor([1.5, -0.5])


class Generator(nn.Sequential):
    def __init__(self, h=128):
        super().__init__(
            nn.Linear(Z, h),
            nn.LeakyReLU(0.2),
            nn.Linear(h, h),
            nn.LeakyReLU(0.2),
            nn.Linear(h, h),
            nn.LeakyReLU(0.2),
            nn.Linear(h, 2),
        )


class Critic(nn.Sequential):
    # no batch norm: the gradient penalty acts on single samples
    def __init__(self, h=128):
        super().__init__(
            nn.Linear(2, h),
            nn.LeakyReLU(0.2),
            nn.Linear(h, h),
            nn.LeakyReLU(0.2),
            nn.Linear(h, h),
            nn.LeakyReLU(0.2),
            nn.Linear(h, 1),
        )


def gradient_penalty(critic, real, fake):
    a = torch.rand(len(real), 1)
    mix = (a * real + (1 - a) * fake).requires_grad_(True)
    (g,) = autograd.grad(critic(mix).sum(), mix, create_graph=True)
    return ((g.norm(2, dim=1) - 1) ** 2).mean()


@torch.no_grad()
def sliced_w(x, y, n_proj=60):
    g = torch.Generator().manual_seed(9)
    d = torch.randn(2, n_proj, generator=g)
    d = d / d.norm(dim=0)
    return ((x @ d).sort(0).values - (y @ d).sort(0).values).abs().mean().item()


def main():
    gen, critic = Generator(), Critic()
    opt_g = torch.optim.Adam(gen.parameters(), lr=5e-4, betas=(0.0, 0.9))
    opt_c = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.0, 0.9))
    held = spiral(2000, torch.Generator().manual_seed(1))
    z_fixed = torch.randn(2000, Z, generator=torch.Generator().manual_seed(2))
    t0 = time.time()
    with torch.no_grad():
        print(f"before training: sliced W1 {sliced_w(gen(z_fixed), held):.3f}")
    for it in range(1, ITERS + 1):
        for _ in range(N_CRITIC):
            real = spiral(BATCH)
            with torch.no_grad():
                fake = gen(torch.randn(BATCH, Z))
            gp = gradient_penalty(critic, real, fake)
            loss_c = critic(fake).mean() - critic(real).mean() + GP_WEIGHT * gp
            opt_c.zero_grad(set_to_none=True)
            loss_c.backward()
            opt_c.step()

        critic.requires_grad_(False)
        loss_g = -critic(gen(torch.randn(BATCH, Z))).mean()
        opt_g.zero_grad(set_to_none=True)
        loss_g.backward()
        opt_g.step()
        critic.requires_grad_(True)

        if it % 20 == 0:
            with torch.no_grad():
                sw = sliced_w(gen(z_fixed), held)
            print(
                f"it {it:4d}  critic {loss_c.item():+.4f}  gen {loss_g.item():+.4f}  gp {gp.item():.4f}  "
                f"sliced W1 {sw:.3f}  {time.time() - t0:.1f}s"
            )


if __name__ == "__main__":
    main()
