# expect: healthy
# symptom: resembles a stalled GAN: the critic loss creeps up, never converges, and the generator loss wanders without falling to anything meaningful
# axis: loss
"""Hinge GAN for two-channel seismic-style wavelets, judged by the statistics of the samples."""

import time

import torch
import torch.nn as nn
from torch.nn.utils.parametrizations import spectral_norm

torch.set_num_threads(1)
torch.manual_seed(8)
T, Z = 32, 12


def wavelets(n, gen):
    t = torch.linspace(-1, 1, T)
    centre = (torch.rand(n, 1, generator=gen) - 0.5) * 0.6
    freq = 2.0 + 1.5 * torch.rand(n, 1, generator=gen)
    amp = 0.6 + 0.4 * torch.rand(n, 1, generator=gen)
    a = (3.1416 * freq * (t - centre)) ** 2
    first = amp * (1 - 2 * a) * torch.exp(-a)
    second = -0.5 * torch.roll(first, 3, dims=1)
    return torch.stack([first, second], 1)


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(Z, 40 * 8)
        self.net = nn.Sequential(
            nn.BatchNorm1d(40),
            nn.ReLU(),
            nn.Upsample(scale_factor=2),
            nn.Conv1d(40, 24, 5, padding=2),
            nn.BatchNorm1d(24),
            nn.ReLU(),
            nn.Upsample(scale_factor=2),
            nn.Conv1d(24, 16, 5, padding=2),
            nn.BatchNorm1d(16),
            nn.ReLU(),
            nn.Conv1d(16, 2, 5, padding=2),
            nn.Tanh(),
        )

    def forward(self, z):
        return self.net(self.fc(z).view(-1, 40, 8))


def critic():
    sn = spectral_norm
    return nn.Sequential(
        sn(nn.Conv1d(2, 16, 5, padding=2)),
        nn.LeakyReLU(0.2),
        sn(nn.Conv1d(16, 32, 4, stride=2, padding=1)),
        nn.LeakyReLU(0.2),
        sn(nn.Conv1d(32, 40, 4, stride=2, padding=1)),
        nn.LeakyReLU(0.2),
        nn.Flatten(),
        sn(nn.Linear(40 * 8, 1)),
    )


def quality(G, ref):
    """distance between feature means and covariances of real and generated traces"""
    G.eval()
    with torch.no_grad():
        x = G(torch.randn(len(ref), Z)).flatten(1)
    G.train()
    r = ref.flatten(1)
    return ((x.mean(0) - r.mean(0)).norm() + (torch.cov(x.T) - torch.cov(r.T)).norm()).item()


def main():
    gen = torch.Generator().manual_seed(1)
    ref = wavelets(2000, torch.Generator().manual_seed(2))
    G, D = Generator(), critic()
    g_opt = torch.optim.Adam(G.parameters(), lr=1e-3, betas=(0.0, 0.9))
    d_opt = torch.optim.Adam(D.parameters(), lr=2e-3, betas=(0.0, 0.9))
    for group in d_opt.param_groups + g_opt.param_groups:
        group["initial_lr"] = group["lr"]
    start = time.time()
    print(f"before training: distance {quality(G, ref):.3f}")
    for step in range(1, 451):
        for group in d_opt.param_groups + g_opt.param_groups:
            group["lr"] = group["initial_lr"] * min(1.0, 2.0 - step / 230)
        real = wavelets(48, gen)
        with torch.no_grad():
            fake = G(torch.randn(48, Z))
        d_loss = torch.relu(1 - D(real)).mean() + torch.relu(1 + D(fake)).mean()
        d_opt.zero_grad()
        d_loss.backward()
        d_opt.step()
        g_loss = -D(G(torch.randn(48, Z))).mean()
        g_opt.zero_grad()
        g_loss.backward()
        g_opt.step()
        if step % 25 == 0:
            print(f"iter {step}: D {d_loss.item():.3f}  G {g_loss.item():+.3f}")
        if step % 90 == 0:
            print(f"iter {step}: distance {quality(G, ref):.3f}")
    print(f"{time.time() - start:.1f}s")


if __name__ == "__main__":
    main()
