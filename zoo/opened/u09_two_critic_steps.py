# expect: healthy
# symptom: the critic is stepped twice for each generator step and its loss wanders without falling; critic parameters have gradients from the generator's pass that are cleared before use
# axis: none
# mended: none
"""GAN with hinge loss and spectral norm on short heartbeat-like curves, two critic steps per generator step."""

import numpy as np
import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

torch.set_num_threads(1)
T, Z = 32, 12


def beats(n, rng):
    t = np.linspace(-1, 1, T)[None]
    c = rng.normal(0, 0.15, (n, 1))
    h = rng.uniform(0.8, 1.4, (n, 1))
    w = rng.uniform(0.08, 0.16, (n, 1))
    x = h * np.exp(-(((t - c) / w) ** 2)) - 0.3 * np.exp(-(((t - c - 2.2 * w) / w) ** 2))
    x += 0.25 * np.exp(-(((t - c - 0.6) / 0.2) ** 2))
    return torch.tensor(x, dtype=torch.float32)


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(Z, 128),
            nn.LayerNorm(128),
            nn.ReLU(),
            nn.Linear(128, 128),
            nn.LayerNorm(128),
            nn.ReLU(),
            nn.Linear(128, T),
        )

    def forward(self, z):
        return self.net(z)


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            spectral_norm(nn.Linear(T, 128)),
            nn.LeakyReLU(0.2),
            spectral_norm(nn.Linear(128, 128)),
            nn.LeakyReLU(0.2),
            spectral_norm(nn.Linear(128, 1)),
        )

    def forward(self, x):
        return self.net(x).squeeze(1)


def moment_gap(fake, real):
    mean = (fake.mean(0) - real.mean(0)).pow(2).mean().sqrt()
    std = (fake.std(0) - real.std(0)).pow(2).mean().sqrt()
    return (mean + std).item()


def main():
    torch.manual_seed(1)
    rng = np.random.default_rng(1)
    G, D = Generator(), Critic()
    opt_g = torch.optim.Adam(G.parameters(), lr=1e-3, betas=(0.0, 0.9))
    opt_d = torch.optim.Adam(D.parameters(), lr=2e-3, betas=(0.0, 0.9))
    reference = beats(2000, rng)
    z_fixed = torch.randn(2000, Z)
    for it in range(400):
        for _ in range(2):
            real = beats(64, rng)
            with torch.no_grad():
                fake = G(torch.randn(64, Z))
            d_loss = torch.relu(1 - D(real)).mean() + torch.relu(1 + D(fake)).mean()
            opt_d.zero_grad()
            d_loss.backward()
            opt_d.step()
        g_loss = -D(G(torch.randn(64, Z))).mean()
        opt_g.zero_grad()
        g_loss.backward()
        opt_g.step()
        if it % 40 == 0 or it == 399:
            with torch.no_grad():
                gap = moment_gap(G(z_fixed), reference)
            print(f"it {it:3d} d_loss {d_loss.item():.4f} g_loss {g_loss.item():+.4f} gap {gap:.4f}")


if __name__ == "__main__":
    main()
