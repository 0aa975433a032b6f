# expect: sick
# symptom: the critic gap is calm for the first phase, then grows by orders of magnitude and the samples get worse
# axis: harness
# cause: the preview puts the critic into eval mode and never back into train mode, so spectral normalisation no longer runs its power iteration and the Lipschitz bound is lost
# says: (?=[\s\S]*(spectral|power.?iteration|lipschitz|normali[sz]|singular))(?=[\s\S]*(\beval\b|evaluation mode|inference mode|train(ing)?( |-)?mode|\.train\(|eval\(\)|frozen|stale|not updated|no longer))
# onset_step: 301
# fix: call critic.train() again after the preview
# mended: yes
"""Wasserstein GAN for short pulse waveforms, spectrally normalised 1-D convolutional critic."""

import math
import os

import torch
import torch.nn as nn
from torch.nn.utils.parametrizations import spectral_norm as sn

MENDED = os.environ.get("MENDED", "") == "1"
torch.set_num_threads(1)
torch.manual_seed(3)

T = 64
Z = 16
BATCH = 64
ITERATIONS = 300


def real_pulses(n):
    t = torch.linspace(0, 1, T)
    centre = 0.3 + 0.4 * torch.rand(n, 1)
    width = 0.04 + 0.05 * torch.rand(n, 1)
    freq = 6 + 4 * torch.rand(n, 1)
    env = torch.exp(-0.5 * ((t - centre) / width) ** 2)
    return env * torch.cos(2 * math.pi * freq * (t - centre)) + 0.02 * torch.randn(n, T)


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.start = nn.Linear(Z, 32 * 8)
        self.up = nn.Sequential(
            nn.BatchNorm1d(32),
            nn.ReLU(),
            nn.ConvTranspose1d(32, 32, 4, 2, 1),
            nn.BatchNorm1d(32),
            nn.ReLU(),
            nn.ConvTranspose1d(32, 24, 4, 2, 1),
            nn.BatchNorm1d(24),
            nn.ReLU(),
            nn.ConvTranspose1d(24, 16, 4, 2, 1),
            nn.ReLU(),
            nn.Conv1d(16, 1, 5, padding=2),
        )

    def forward(self, z):
        return self.up(self.start(z).view(-1, 32, 8)).squeeze(1)


def make_critic():
    return nn.Sequential(
        sn(nn.Conv1d(1, 24, 5, 2, 2)),
        nn.LeakyReLU(0.2),
        sn(nn.Conv1d(24, 48, 5, 2, 2)),
        nn.LeakyReLU(0.2),
        sn(nn.Conv1d(48, 64, 5, 2, 2)),
        nn.LeakyReLU(0.2),
        nn.Flatten(),
        sn(nn.Linear(64 * 8, 64)),
        nn.LeakyReLU(0.2),
        sn(nn.Linear(64, 1)),
    )


def spectrum_error(fake, real):
    a = torch.fft.rfft(fake).abs().mean(0)
    b = torch.fft.rfft(real).abs().mean(0)
    return ((a - b).norm() / b.norm()).item()


gen, critic = Generator(), make_critic()
opt_g = torch.optim.Adam(gen.parameters(), lr=4e-4, betas=(0.0, 0.9))
opt_c = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.0, 0.9))
fixed_z = torch.randn(256, Z)
held_out = real_pulses(1024)


@torch.no_grad()
def preview(step):
    gen.eval()
    critic.eval()
    fake = gen(fixed_z)
    margin = critic(held_out[:, None]).mean() - critic(fake[:, None]).mean()
    print(
        f"   [preview {step}] margin {margin.item():.4f} "
        f"spectrum error {spectrum_error(fake, held_out):.3f} sample std {fake.std().item():.3f}"
    )
    gen.train()
    if MENDED:
        critic.train()


for it in range(1, ITERATIONS + 1):
    for _ in range(2):
        real = real_pulses(BATCH)
        with torch.no_grad():
            fake = gen(torch.randn(BATCH, Z))
        gap = critic(real[:, None]).mean() - critic(fake[:, None]).mean()
        opt_c.zero_grad()
        (-gap).backward()
        opt_c.step()

    loss_g = -critic(gen(torch.randn(BATCH, Z))[:, None]).mean()
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()

    if it % 10 == 0:
        print(f"it {it:4d}  critic gap {gap.item():10.4f}  gen loss {loss_g.item():10.4f}")
    if it % 100 == 0:
        preview(it)
