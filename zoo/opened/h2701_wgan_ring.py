# expect: healthy
# symptom: resembles diverging GAN training: critic loss is negative and noisy, generator loss drifts and rises
# axis: loss
"""Wasserstein GAN with gradient penalty on a ring of eight Gaussians.

Reports the number of modes covered and the share of good samples.
"""

import math
import torch
from torch import nn, autograd

torch.set_num_threads(1)
torch.manual_seed(8)

K, RADIUS, STD = 8, 2.0, 0.2
Z_DIM, BATCH = 8, 512
N_CRITIC, GP_WEIGHT = 2, 0.3
G_STEPS = 300

angles = torch.arange(K) * (2 * math.pi / K)
centres = RADIUS * torch.stack([angles.cos(), angles.sin()], dim=1)


def real_batch(n):
    which = torch.randint(K, (n,))
    return centres[which] + STD * torch.randn(n, 2)


def net(i, o, width=128):
    return nn.Sequential(
        nn.Linear(i, width),
        nn.LeakyReLU(0.2),
        nn.Linear(width, width),
        nn.LeakyReLU(0.2),
        nn.Linear(width, width),
        nn.LeakyReLU(0.2),
        nn.Linear(width, o),
    )


G, D = net(Z_DIM, 2), net(2, 1)
opt_g = torch.optim.Adam(G.parameters(), lr=2e-3, betas=(0.0, 0.9))
opt_d = torch.optim.Adam(D.parameters(), lr=3e-3, betas=(0.0, 0.9))


def gradient_penalty(real, fake):
    mix = torch.rand(len(real), 1)
    point = (mix * real + (1 - mix) * fake).requires_grad_(True)
    out = D(point)
    (grad,) = autograd.grad(out.sum(), point, create_graph=True)
    return ((grad.norm(2, dim=1) - 1) ** 2).mean()


def critic_step():
    real = real_batch(BATCH)
    with torch.no_grad():
        fake = G(torch.randn(BATCH, Z_DIM))
    wdist = D(real).mean() - D(fake).mean()
    loss = -wdist + GP_WEIGHT * gradient_penalty(real, fake)
    opt_d.zero_grad()
    loss.backward()
    opt_d.step()
    return loss.item(), wdist.item()


def generator_step():
    for p in D.parameters():
        p.requires_grad_(False)
    loss = -D(G(torch.randn(BATCH, Z_DIM))).mean()
    opt_g.zero_grad()
    loss.backward()
    opt_g.step()
    for p in D.parameters():
        p.requires_grad_(True)
    return loss.item()


@torch.no_grad()
def coverage(n=4000):
    x = G(torch.randn(n, Z_DIM))
    dist, which = torch.cdist(x, centres).min(dim=1)
    good = dist < 3 * STD
    counts = torch.bincount(which[good], minlength=K)
    return int((counts > n / K * 0.1).sum()), good.float().mean().item()


for it in range(1, G_STEPS + 1):
    for _ in range(N_CRITIC):
        d_loss, w = critic_step()
    g_loss = generator_step()
    for opt, base in ((opt_g, 2e-3), (opt_d, 3e-3)):
        opt.param_groups[0]["lr"] = base * (1 - 0.9 * it / G_STEPS)
    if it == 1 or it % 20 == 0:
        modes, good = coverage()
        print(
            f"gen step {it:4d}  critic {d_loss:+.3f}  generator {g_loss:+.3f}  "
            f"W {w:.3f}  modes {modes}/{K}  good {100 * good:.0f}%"
        )
