# expect: healthy
# symptom: the critic loss is negative and bumpy and climbs towards zero, the generator loss falls at first, then rises and stays away from zero, neither converges to anything
# axis: none
# mended: none
"""Wasserstein GAN with gradient penalty on a ring of eight Gaussians."""

import math
import os
import time

import torch
import torch.nn as nn

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(5)

STEPS, CRITIC, BATCH, Z, LAMBDA = 600, 4, 128, 4, 1.0


def real_batch(n, gen):
    k = torch.randint(0, 8, (n,), generator=gen)
    a = k * (2 * math.pi / 8)
    return 2 * torch.stack([a.cos(), a.sin()], 1) + 0.08 * torch.randn(n, 2, generator=gen)


def mlp(i, o, h=128):
    return nn.Sequential(
        nn.Linear(i, h),
        nn.LeakyReLU(0.2),
        nn.Linear(h, h),
        nn.LeakyReLU(0.2),
        nn.Linear(h, h),
        nn.LeakyReLU(0.2),
        nn.Linear(h, o),
    )


def penalty(critic, real, fake):
    u = torch.rand(len(real), 1)
    x = (u * real + (1 - u) * fake).requires_grad_(True)
    g = torch.autograd.grad(critic(x).sum(), x, create_graph=True)[0]
    return ((g.norm(dim=1) - 1) ** 2).mean()


def quality(gen_net):
    with torch.no_grad():
        x = gen_net(torch.randn(2000, Z))
    a = torch.arange(8) * (2 * math.pi / 8)
    centres = 2 * torch.stack([a.cos(), a.sin()], 1)
    d, k = torch.cdist(x, centres).min(1)
    good = d < 0.35
    modes = (torch.bincount(k[good], minlength=8) > 40).sum().item()
    return modes, good.float().mean().item()


def main():
    g = torch.Generator().manual_seed(1)
    gen_net, critic = mlp(Z, 2), mlp(2, 1)
    opt_g = torch.optim.Adam(gen_net.parameters(), lr=1e-3, betas=(0.0, 0.9))
    opt_c = torch.optim.Adam(critic.parameters(), lr=2e-3, betas=(0.0, 0.9))
    decay = [torch.optim.lr_scheduler.LinearLR(o, 1.0, 0.05, STEPS) for o in (opt_g, opt_c)]
    t0 = time.time()
    for step in range(STEPS):
        for _ in range(CRITIC):
            real = real_batch(BATCH, g)
            with torch.no_grad():
                fake = gen_net(torch.randn(BATCH, Z))
            wdist = critic(real).mean() - critic(fake).mean()
            loss_c = -wdist + LAMBDA * penalty(critic, real, fake)
            opt_c.zero_grad()
            loss_c.backward()
            opt_c.step()
        loss_g = -critic(gen_net(torch.randn(BATCH, Z))).mean()
        opt_g.zero_grad()
        loss_g.backward()
        opt_g.step()
        for d in decay:
            d.step()
        if step % 20 == 0 or step == STEPS - 1:
            modes, share = quality(gen_net)
            print(
                f"step {step:4d} critic loss {loss_c.item():+.4f} generator loss {loss_g.item():+.4f} "
                f"modes {modes} near {share:.3f}",
                flush=True,
            )
    print(f"done {time.time() - t0:.1f}s")


if __name__ == "__main__":
    main()
