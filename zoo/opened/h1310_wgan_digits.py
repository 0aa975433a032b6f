# expect: healthy
# symptom: the critic loss is strongly negative and shrinks, the generator loss wanders with either sign and does not fall; the distance to the data falls all the same
# axis: none
# mended: none
import os
from dataclasses import dataclass

import torch
import torch.nn as nn

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)


@dataclass
class Config:
    size: int = 12
    z: int = 16
    batch: int = 48
    n_critic: int = 3
    gen_steps: int = 240
    lr: float = 4e-4
    gp: float = 10.0
    seed: int = 31


class Strokes:
    """Small grey glyphs: a blurred line of random angle, offset and brightness."""

    def __init__(self, cfg, seed):
        self.s, self.g = cfg.size, torch.Generator().manual_seed(seed)
        ax = torch.linspace(-1, 1, cfg.size)
        self.yy, self.xx = torch.meshgrid(ax, ax, indexing="ij")

    def sample(self, n):
        r = torch.rand(n, 3, generator=self.g)
        th = (r[:, 0] * 3.1416)[:, None, None]
        off = (r[:, 1] - 0.5)[:, None, None]
        d = self.xx * th.cos() + self.yy * th.sin() - off
        img = torch.exp(-(d**2) / 0.05) * (0.6 + 0.4 * r[:, 2])[:, None, None]
        return (2 * img - 1)[:, None]


class Generator(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.net = nn.Sequential(
            nn.Linear(c.z, 192), nn.ReLU(), nn.Linear(192, 192), nn.ReLU(), nn.Linear(192, c.size**2), nn.Tanh()
        )

    def forward(self, z):
        return self.net(z).view(-1, 1, self.c.size, self.c.size)


class Critic(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, 24, 3, 2, 1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(24, 48, 3, 2, 1),
            nn.LeakyReLU(0.2),
            nn.Flatten(),
            nn.Linear(48 * 9, 64),
            nn.LeakyReLU(0.2),
            nn.Linear(64, 1),
        )

    def forward(self, x):
        return self.net(x)[:, 0]


def gradient_penalty(critic, real, fake):
    mix = torch.rand(len(real), 1, 1, 1)
    x = (mix * real + (1 - mix) * fake).requires_grad_(True)
    (grad,) = torch.autograd.grad(critic(x).sum(), x, create_graph=True)
    return (grad.flatten(1).norm(dim=1) - 1).pow(2).mean()


def sliced_distance(a, b, directions):
    pa, pb = (a.flatten(1) @ directions).sort(0).values, (b.flatten(1) @ directions).sort(0).values
    return (pa - pb).abs().mean().item()


class WGAN:
    def __init__(self, cfg):
        self.c, self.data = cfg, Strokes(cfg, 1)
        self.G, self.D = Generator(cfg), Critic(cfg)
        self.opt_g = torch.optim.Adam(self.G.parameters(), lr=cfg.lr, betas=(0.0, 0.9))
        self.opt_d = torch.optim.Adam(self.D.parameters(), lr=cfg.lr, betas=(0.0, 0.9))
        self.held, self.fixed_z = Strokes(cfg, 2).sample(512), torch.randn(512, cfg.z)
        d = torch.randn(cfg.size**2, 64)
        self.dirs = d / d.norm(dim=0)

    def critic_step(self):
        real = self.data.sample(self.c.batch)
        with torch.no_grad():
            fake = self.G(torch.randn(self.c.batch, self.c.z))
        loss = self.D(fake).mean() - self.D(real).mean() + self.c.gp * gradient_penalty(self.D, real, fake)
        self.opt_d.zero_grad()
        loss.backward()
        self.opt_d.step()
        return loss.item()

    def generator_step(self):
        loss = -self.D(self.G(torch.randn(self.c.batch, self.c.z))).mean()
        self.opt_g.zero_grad()
        loss.backward()
        self.opt_g.step()
        return loss.item()

    def fit(self):
        for step in range(self.c.gen_steps):
            for _ in range(self.c.n_critic):
                ld = self.critic_step()
            lg = self.generator_step()
            if step % 10 == 0:
                with torch.no_grad():
                    swd = sliced_distance(self.G(self.fixed_z), self.held, self.dirs)
                print(f"step {step} critic loss {ld:.4f} generator loss {lg:.4f} swd {swd:.4f}", flush=True)


if __name__ == "__main__":
    cfg = Config()
    torch.manual_seed(cfg.seed)
    WGAN(cfg).fit()
