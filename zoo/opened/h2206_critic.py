# expect: healthy
# symptom: resembles a failing GAN: critic loss jumps, then hovers about zero and changes sign, generator loss wanders noisily without falling, critic has the higher learning rate
# axis: loss
"""WGAN-GP on two-dimensional spirals with sliced Wasserstein distance as the score."""

import copy
import math

import torch
from torch import nn, autograd

torch.set_num_threads(1)
torch.manual_seed(31)

Z, HID, BATCH, N_CRITIC, LAMBDA = 4, 96, 256, 3, 5.0


def real_batch(n):
    arm = torch.randint(0, 2, (n,)).float() * math.pi
    r = torch.rand(n).sqrt()
    ang = 3.2 * r + arm
    xy = torch.stack([r * ang.cos(), r * ang.sin()], 1) * 2.0
    return xy + 0.03 * torch.randn(n, 2) + torch.tensor([1.5, -0.5])


def block(i, o):
    return nn.Sequential(nn.Linear(i, o), nn.LeakyReLU(0.2))


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(block(Z, HID), block(HID, HID), block(HID, HID), nn.Linear(HID, 2))

    def forward(self, z):
        return self.net(z)


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(block(2, HID), block(HID, HID), block(HID, HID), nn.Linear(HID, 1))

    def forward(self, x):
        return self.net(x).squeeze(1)


def gradient_penalty(critic, real, fake):
    mix = torch.rand(len(real), 1)
    x = (mix * real + (1 - mix) * fake).requires_grad_(True)
    (g,) = autograd.grad(critic(x).sum(), x, create_graph=True)
    return ((g.norm(dim=1) - 1) ** 2).mean()


@torch.no_grad()
def sliced_wasserstein(a, b, n_proj=128):
    th = torch.rand(n_proj) * math.pi
    d = torch.stack([th.cos(), th.sin()])
    return ((a @ d).sort(0).values - (b @ d).sort(0).values).abs().mean().item()


gen, critic = Generator(), Critic()
gen_avg = copy.deepcopy(gen).requires_grad_(False)
opt_g = torch.optim.Adam(gen.parameters(), lr=1e-3, betas=(0.0, 0.9))
opt_c = torch.optim.Adam(critic.parameters(), lr=2e-3, betas=(0.0, 0.9))
reference = real_batch(2000)

for it in range(1, 601):
    for _ in range(N_CRITIC):
        real = real_batch(BATCH)
        with torch.no_grad():
            fake = gen(torch.randn(BATCH, Z))
        wdist = critic(real).mean() - critic(fake).mean()
        c_loss = -wdist + LAMBDA * gradient_penalty(critic, real, fake)
        opt_c.zero_grad()
        c_loss.backward()
        opt_c.step()

    critic.requires_grad_(False)
    g_loss = -critic(gen(torch.randn(BATCH, Z))).mean()
    opt_g.zero_grad()
    g_loss.backward()
    opt_g.step()
    critic.requires_grad_(True)

    with torch.no_grad():
        for p, q in zip(gen_avg.parameters(), gen.parameters()):
            p.lerp_(q, 0.02)

    if it == 1 or it % 50 == 0:
        swd = sliced_wasserstein(gen_avg(torch.randn(2000, Z)), reference)
        print(
            f"[{it:4d}] critic {c_loss.item():+.3f} generator {g_loss.item():+.3f} "
            f"W-estimate {wdist.item():.3f} sliced-W {swd:.3f}"
        )
