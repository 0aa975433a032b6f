# expect: healthy
# symptom: the critic's loss is negative, falls far below zero first and then rises again and again towards zero; the generator's loss wanders with no trend (WGAN-GP)
# axis: none
# mended: none
import os

import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"

ZDIM = 8


def real_batch(n, gen):
    """Two rings with different radius, shifted away from the origin."""
    a = torch.rand(n, generator=gen) * 2 * np.pi
    r = torch.where(torch.rand(n, generator=gen) < 0.5, 1.0, 2.0) + 0.05 * torch.randn(n, generator=gen)
    return torch.stack([r * a.cos() + 0.5, r * a.sin() - 0.5], 1)


def mlp(i, o, h=96):
    return nn.Sequential(
        nn.Linear(i, h),
        nn.LeakyReLU(0.2),
        nn.Linear(h, h),
        nn.LeakyReLU(0.2),
        nn.Linear(h, h),
        nn.LeakyReLU(0.2),
        nn.Linear(h, o),
    )


def gradient_penalty(critic, real, fake):
    eps = torch.rand(real.size(0), 1)
    mid = (eps * real + (1 - eps) * fake).requires_grad_(True)
    (g,) = torch.autograd.grad(critic(mid).sum(), mid, create_graph=True)
    return ((g.norm(2, dim=1) - 1) ** 2).mean()


@torch.no_grad()
def sliced_wasserstein(a, b, k=64):
    d = torch.randn(2, k, generator=torch.Generator().manual_seed(0))
    d = d / d.norm(dim=0)
    return ((a @ d).sort(0)[0] - (b @ d).sort(0)[0]).abs().mean().item()


def main():
    torch.manual_seed(6)
    gen = torch.Generator().manual_seed(1)
    G, critic = mlp(ZDIM, 2), mlp(2, 1)
    opt_g = torch.optim.Adam(G.parameters(), lr=3e-4, betas=(0.5, 0.9))
    opt_c = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.5, 0.9))
    n, n_critic, lam = 192, 4, 1.0
    held = real_batch(2000, torch.Generator().manual_seed(9))
    for it in range(180):
        for _ in range(n_critic):
            real = real_batch(n, gen)
            fake = G(torch.randn(n, ZDIM)).detach()
            w = critic(fake).mean() - critic(real).mean()
            loss_c = w + lam * gradient_penalty(critic, real, fake)
            opt_c.zero_grad()
            loss_c.backward()
            opt_c.step()
        loss_g = -critic(G(torch.randn(n, ZDIM))).mean()
        opt_g.zero_grad()
        loss_g.backward()
        opt_g.step()
        if it % 10 == 0:
            print(f"iter {it:4d} critic_loss {loss_c.item():+.4f} gen_loss {loss_g.item():+.4f} w {-w.item():.4f}")
        if it % 45 == 44:
            with torch.no_grad():
                sw = sliced_wasserstein(G(torch.randn(2000, ZDIM)), held)
            print(f"   sliced wasserstein distance to held-out data {sw:.4f}")


if __name__ == "__main__":
    main()
