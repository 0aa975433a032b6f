# expect: healthy
# symptom: the critic loss is negative and moves back towards zero, i.e. it rises, the generator loss drifts up and down without falling, and the generator is updated once in five steps
# axis: none
# mended: none
import math

import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(10)

Z, BATCH, N_CRITIC, LAMBDA, GEN_STEPS = 16, 128, 5, 10.0, 160


def real_batch(n):
    """Noisy closed curves: 32 points of a star shape with a random number of arms and phase."""
    k = torch.randint(3, 3 + 3, (n, 1)).float()
    ph = 2 * math.pi * torch.rand(n, 1)
    t = torch.linspace(0, 2 * math.pi, 33)[None, :-1]
    rad = 1.5 + 0.5 * torch.cos(k * t + ph)
    xy = torch.stack([rad * t.cos(), rad * t.sin()], -1)
    return (xy + 0.03 * torch.randn_like(xy)).flatten(1)


class Generator(nn.Module):
    def __init__(self, h=128, out=64):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(Z, h),
            nn.BatchNorm1d(h),
            nn.ReLU(),
            nn.Linear(h, h),
            nn.BatchNorm1d(h),
            nn.ReLU(),
            nn.Linear(h, out),
        )

    def forward(self, z):
        return self.net(z)


class Critic(nn.Module):
    def __init__(self, h=128, i=64):
        super().__init__()
        # no batch norm: the gradient penalty is per sample
        self.net = nn.Sequential(
            nn.Linear(i, h), nn.LeakyReLU(0.2), nn.Linear(h, h), nn.LeakyReLU(0.2), nn.Linear(h, 1)
        )

    def forward(self, x):
        return self.net(x).squeeze(-1)


def gradient_penalty(critic, real, fake):
    a = torch.rand(len(real), 1)
    x = (a * real + (1 - a) * fake).requires_grad_(True)
    (g,) = torch.autograd.grad(critic(x).sum(), x, create_graph=True)
    return ((g.norm(2, dim=1) - 1) ** 2).mean()


@torch.no_grad()
def sliced_distance(a, b, n=64):
    d = torch.randn(a.shape[1], n, generator=torch.Generator().manual_seed(0))
    d = d / d.norm(dim=0)
    return ((a @ d).sort(0).values - (b @ d).sort(0).values).abs().mean().item()


def main():
    gen, critic = Generator(), Critic()
    g_opt = torch.optim.Adam(gen.parameters(), lr=5e-4, betas=(0.0, 0.9))
    c_opt = torch.optim.Adam(critic.parameters(), lr=5e-4, betas=(0.0, 0.9))
    it = 0
    for gstep in range(GEN_STEPS):
        for p in critic.parameters():
            p.requires_grad_(True)
        for _ in range(N_CRITIC):
            real = real_batch(BATCH)
            with torch.no_grad():
                fake = gen(torch.randn(BATCH, Z))
            gp = gradient_penalty(critic, real, fake)
            c_loss = critic(fake).mean() - critic(real).mean() + LAMBDA * gp
            c_opt.zero_grad(set_to_none=True)
            c_loss.backward()
            c_opt.step()
            it += 1
        for p in critic.parameters():
            p.requires_grad_(False)
        g_loss = -critic(gen(torch.randn(BATCH, Z))).mean()
        g_opt.zero_grad(set_to_none=True)
        g_loss.backward()
        g_opt.step()
        if gstep % 4 == 0:
            print(f"step {it} loss {c_loss.item():.4f} gp {gp.item():.4f} g_loss {g_loss.item():.4f}", flush=True)
        if (gstep + 1) % 36 == 0:
            with torch.no_grad():
                sample = gen(torch.randn(1024, Z))
            print(f"step {it} sliced distance to data {sliced_distance(sample, real_batch(1024)):.4f}", flush=True)


if __name__ == "__main__":
    main()
