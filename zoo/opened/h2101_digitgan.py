# expect: healthy
# symptom: discriminator loss creeps UP to its chance level, generator loss hops around zero and goes negative, two very different learning rates, D switched off for half of the passes; resembles a failed GAN, yet the samples keep improving
# axis: none
# mended: none
import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.nn.utils.parametrizations import spectral_norm

torch.set_num_threads(1)


class Cfg:
    z = 24
    classes = 10
    batch = 64
    g_steps = 320
    d_per_g = 2
    lr_g = 1e-3
    lr_d = 3e-3
    betas = (0.0, 0.9)
    ema = 0.98


class Generator(nn.Module):
    def __init__(self, z, classes, w=32):
        super().__init__()
        self.cls = nn.Embedding(classes, 16)
        self.fc = nn.Linear(z + 16, w * 2 * 2)
        self.bn0 = nn.BatchNorm1d(w * 4)
        self.up = nn.Sequential(
            nn.ConvTranspose2d(w, w, 4, 2, 1),
            nn.BatchNorm2d(w),
            nn.ReLU(),
            nn.ConvTranspose2d(w, w // 2, 4, 2, 1),
            nn.BatchNorm2d(w // 2),
            nn.ReLU(),
            nn.Conv2d(w // 2, 1, 3, padding=1),
        )
        self.w = w

    def forward(self, z, y):
        h = F.relu(self.bn0(self.fc(torch.cat([z, self.cls(y)], 1))))
        return torch.tanh(self.up(h.view(-1, self.w, 2, 2)))


class Discriminator(nn.Module):
    """Projection discriminator with spectral normalisation everywhere."""

    def __init__(self, classes, w=16):
        super().__init__()
        sn = spectral_norm
        self.body = nn.Sequential(
            sn(nn.Conv2d(1, w, 3, padding=1)),
            nn.LeakyReLU(0.1),
            sn(nn.Conv2d(w, w, 4, 2, 1)),
            nn.LeakyReLU(0.1),
            sn(nn.Conv2d(w, 2 * w, 4, 2, 1)),
            nn.LeakyReLU(0.1),
            nn.Flatten(),
        )
        self.lin = sn(nn.Linear(2 * w * 4, 1))
        self.proj = sn(nn.Embedding(classes, 2 * w * 4))

    def forward(self, x, y):
        h = self.body(x)
        return (self.lin(h) + (h * self.proj(y)).sum(1, keepdim=True)).squeeze(1)


def feature_stats(x):
    f = x.flatten(1)
    return f.mean(0), torch.cov(f.T)


def gaussian_distance(x, y):
    m1, c1 = feature_stats(x)
    m2, c2 = feature_stats(y)
    return ((m1 - m2).pow(2).sum() + (c1 - c2).pow(2).sum().sqrt()).item()


@torch.no_grad()
def lerp_state(dst, src, decay):
    for a, b in zip(dst.parameters(), src.parameters()):
        a.lerp_(b, 1 - decay)
    for a, b in zip(dst.buffers(), src.buffers()):
        a.copy_(b)


def endless(x, y, batch, gen):
    while True:
        order = torch.randperm(len(x), generator=gen)
        for i in range(0, len(x) - batch + 1, batch):
            j = order[i : i + batch]
            yield x[j], y[j]


def main():
    torch.manual_seed(7)
    cfg, gen = Cfg(), torch.Generator().manual_seed(7)
    raw = load_digits()
    x = torch.tensor(raw.images).float().unsqueeze(1) / 8 - 1
    y = torch.tensor(raw.target)
    data = endless(x, y, cfg.batch, gen)
    G, D = Generator(cfg.z, cfg.classes), Discriminator(cfg.classes)
    G_avg = copy.deepcopy(G).requires_grad_(False)
    og = torch.optim.Adam(G.parameters(), lr=cfg.lr_g, betas=cfg.betas)
    od = torch.optim.Adam(D.parameters(), lr=cfg.lr_d, betas=cfg.betas)
    fixed_z, fixed_y = torch.randn(600, cfg.z), torch.randint(0, 10, (600,))

    for step in range(cfg.g_steps):
        for _ in range(cfg.d_per_g):
            real, lab = next(data)
            z, fy = torch.randn(cfg.batch, cfg.z), torch.randint(0, cfg.classes, (cfg.batch,))
            with torch.no_grad():
                fake = G(z, fy)
            d_loss = F.relu(1 - D(real, lab)).mean() + F.relu(1 + D(fake, fy)).mean()
            od.zero_grad()
            d_loss.backward()
            od.step()

        D.requires_grad_(False)
        z, fy = torch.randn(2 * cfg.batch, cfg.z), torch.randint(0, cfg.classes, (2 * cfg.batch,))
        g_loss = -D(G(z, fy), fy).mean()
        og.zero_grad()
        g_loss.backward()
        og.step()
        D.requires_grad_(True)
        lerp_state(G_avg, G, min(cfg.ema, (1 + step) / (10 + step)))

        if step % 20 == 0:
            print(f"step {step:4d} d_loss {d_loss.item():.4f} g_loss {g_loss.item():+.4f}")
        if step % 80 == 79:
            G_avg.eval()
            with torch.no_grad():
                s = G_avg(fixed_z, fixed_y)
            spread = s.flatten(1).std(0).mean().item()
            print(
                f"   distance {gaussian_distance(s, x):.4f} spread {spread:.3f} (data {x.flatten(1).std(0).mean():.3f})"
            )
            assert math.isfinite(spread)


if __name__ == "__main__":
    main()
