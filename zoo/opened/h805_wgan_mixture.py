# expect: healthy
# symptom: negative losses that wander with no trend: looks like a diverging or dead GAN, or like a loss with the wrong sign
# axis: loss
# cause: healthy: the losses are Wasserstein critic scores, whose sign and level mean nothing; the distance of the samples to the data falls
# says: none
# onset_step: none
# fix: none
# mended: none
import math

import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(4)

Z, BATCH, N_CRITIC, LAMBDA, G_STEPS = 4, 128, 3, 0.3, 200


def real_batch(n):
    """Eight spots on a circle."""
    k = torch.randint(0, 8, (n,))
    ang = k * (2 * math.pi / 8)
    return torch.stack([ang.cos(), ang.sin()], 1) * 2 + 0.08 * torch.randn(n, 2)


generator = nn.Sequential(nn.Linear(Z, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, 2))
critic = nn.Sequential(nn.Linear(2, 96), nn.LeakyReLU(0.2), nn.Linear(96, 96), nn.LeakyReLU(0.2), nn.Linear(96, 1))
opt_g = torch.optim.Adam(generator.parameters(), lr=3e-3, betas=(0.0, 0.9))
opt_c = torch.optim.Adam(critic.parameters(), lr=3e-3, betas=(0.0, 0.9))


def gradient_penalty(real, fake):
    mix = torch.rand(len(real), 1)
    x = (mix * real + (1 - mix) * fake).requires_grad_(True)
    (grad,) = torch.autograd.grad(critic(x).sum(), x, create_graph=True)
    return ((grad.norm(2, dim=1) - 1) ** 2).mean()


@torch.no_grad()
def quality(n=2000):
    x, ref = generator(torch.randn(n, Z)), real_batch(n)
    ang = torch.arange(8) * (2 * math.pi / 8)
    centres = 2 * torch.stack([ang.cos(), ang.sin()], 1)
    which = torch.cdist(x, centres).argmin(1)
    w = torch.randn(2, 50)
    w = w / w.norm(dim=0)
    sliced = ((x @ w).sort(0).values - (ref @ w).sort(0).values).abs().mean().item()
    return sliced, int((torch.bincount(which, minlength=8) > n // 40).sum())


for it in range(1, G_STEPS + 1):
    for p in critic.parameters():
        p.requires_grad_(True)
    for _ in range(N_CRITIC):
        real = real_batch(BATCH)
        fake = generator(torch.randn(BATCH, Z)).detach()
        score_real, score_fake = critic(real).mean(), critic(fake).mean()
        loss_c = score_fake - score_real + LAMBDA * gradient_penalty(real, fake)
        opt_c.zero_grad()
        loss_c.backward()
        opt_c.step()

    for p in critic.parameters():
        p.requires_grad_(False)
    loss_g = -critic(generator(torch.randn(BATCH, Z))).mean()
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()

    if it % 10 == 0 or it == 1:
        dist, modes = quality()
        print(
            f"it {it:4d} critic loss {loss_c.item():+.4f} generator loss {loss_g.item():+.4f} "
            f"sliced distance to data {dist:.3f} spots covered {modes}/8"
        )
