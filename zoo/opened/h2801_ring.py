# expect: healthy
# symptom: adversarial losses that do not fall (generator loss wanders around zero with changing sign, critic loss stays near 1.7), resembles a failing GAN
# axis: loss
"""Hinge GAN on damped oscillations (32 samples each); quality by a sliced distance."""

import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(23)

LENGTH, LATENT, BATCH, ROUNDS = 32, 12, 128, 450


def real_waves(n):
    t = torch.linspace(0, 1, LENGTH)
    freq = torch.where(torch.rand(n, 1) < 0.5, 2.0, 3.5) + 0.1 * torch.randn(n, 1)
    decay = 1.0 + 2.0 * torch.rand(n, 1)
    phase = torch.rand(n, 1) * math.pi
    return torch.exp(-decay * t) * torch.sin(2 * math.pi * freq * t + phase)


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(LATENT, 128),
            nn.LeakyReLU(0.2),
            nn.Linear(128, 128),
            nn.LeakyReLU(0.2),
            nn.Linear(128, LENGTH),
        )

    def forward(self, z):
        return torch.tanh(self.body(z))


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        sn = nn.utils.parametrizations.spectral_norm
        self.conv = nn.Sequential(
            sn(nn.Conv1d(1, 32, 5, stride=2, padding=2)),
            nn.LeakyReLU(0.2),
            sn(nn.Conv1d(32, 64, 5, stride=2, padding=2)),
            nn.LeakyReLU(0.2),
        )
        self.flat = sn(nn.Linear(64 * LENGTH // 4, 64))
        self.top = nn.Linear(64, 1)

    def forward(self, x):
        h = self.conv(x.unsqueeze(1)).flatten(1)
        return self.top(F.leaky_relu(self.flat(h), 0.2)).squeeze(1)


@torch.no_grad()
def sliced_distance(a, b, n_proj=128):
    d = F.normalize(torch.randn(LENGTH, n_proj, generator=torch.Generator().manual_seed(1)), dim=0)
    return ((a @ d).sort(0).values - (b @ d).sort(0).values).pow(2).mean().sqrt().item()


g, d = Generator(), Critic()
opt_g = torch.optim.Adam(g.parameters(), lr=1e-3, betas=(0.0, 0.9))
opt_d = torch.optim.Adam(d.parameters(), lr=2e-3, betas=(0.0, 0.9))
reference = real_waves(2000)
z_eval = torch.randn(2000, LATENT)
print(
    f"start distance {sliced_distance(g(z_eval), reference):.4f}, "
    f"floor {sliced_distance(real_waves(2000), reference):.4f}"
)

t0 = time.time()
for r in range(1, ROUNDS + 1):
    x = real_waves(BATCH)
    with torch.no_grad():
        fake = g(torch.randn(BATCH, LATENT))
    d_loss = F.relu(1 - d(x)).mean() + F.relu(1 + d(fake)).mean()
    opt_d.zero_grad(set_to_none=True)
    d_loss.backward()
    opt_d.step()

    g_loss = -d(g(torch.randn(BATCH, LATENT))).mean()
    opt_g.zero_grad(set_to_none=True)
    g_loss.backward()
    opt_g.step()

    if r % 30 == 0:
        print(
            f"round {r:4d}  d {d_loss.item():.3f}  g {g_loss.item():+.3f}  "
            f"distance {sliced_distance(g(z_eval), reference):.4f}  {time.time() - t0:.1f}s"
        )
