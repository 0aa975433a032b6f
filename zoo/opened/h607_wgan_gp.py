# expect: healthy
# symptom: the critic's loss is negative and moves back towards zero, the generator's loss wanders without falling, and gradients pile up in the critic (resembles divergence and stale gradients)
# axis: harness
# cause: this is ordinary WGAN-GP with five critic updates per generator update; the losses are not errors, the critic's gradients are cleared before each of its own steps, and the distance of the samples to the data falls
# says: none
# onset_step: none
# fix: none
# mended: none
import logging
import math

import numpy as np
import torch
from torch import autograd, nn, optim

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
torch.set_num_threads(1)
torch.manual_seed(31)
RNG = np.random.default_rng(31)


def spiral(n):
    t = np.sqrt(RNG.random(n)) * 2.5 * math.pi
    r = 0.25 + t / (2.5 * math.pi) * 1.6
    pts = np.stack([r * np.cos(t), r * np.sin(t)], 1) + RNG.normal(0, 0.05, (n, 2))
    return torch.tensor(pts, dtype=torch.float32)


def net(i, o, width=96):
    return nn.Sequential(
        nn.Linear(i, width),
        nn.LeakyReLU(0.1),
        nn.Linear(width, width),
        nn.LeakyReLU(0.1),
        nn.Linear(width, width),
        nn.LeakyReLU(0.1),
        nn.Linear(width, o),
    )


def penalty(critic, real, fake):
    mix = torch.rand(len(real), 1)
    x = (mix * real + (1 - mix) * fake).requires_grad_(True)
    (grad,) = autograd.grad(critic(x).sum(), x, create_graph=True)
    return ((grad.norm(dim=1) - 1) ** 2).mean()


def sliced_distance(a, b):
    ang = torch.linspace(0, math.pi, 33)[:-1]
    d = torch.stack([ang.cos(), ang.sin()])
    return ((a @ d).sort(0).values - (b @ d).sort(0).values).abs().mean().item()


class WGAN:
    def __init__(self, z_dim=6, batch=128, n_critic=5):
        self.z_dim, self.batch, self.n_critic = z_dim, batch, n_critic
        self.gen, self.critic = net(z_dim, 2), net(2, 1)
        self.opt_g = optim.Adam(self.gen.parameters(), lr=1e-3, betas=(0.0, 0.9))
        self.opt_c = optim.Adam(self.critic.parameters(), lr=1e-3, betas=(0.0, 0.9))

    def fake(self, n=None):
        return self.gen(torch.randn(n or self.batch, self.z_dim))

    def critic_update(self):
        real = spiral(self.batch)
        with torch.no_grad():
            fake = self.fake()
        loss = self.critic(fake).mean() - self.critic(real).mean() + 1.0 * penalty(self.critic, real, fake)
        self.opt_c.zero_grad()
        loss.backward()
        self.opt_c.step()
        return loss.item()

    def generator_update(self):
        loss = -self.critic(self.fake()).mean()
        self.opt_g.zero_grad()
        loss.backward()
        self.opt_g.step()
        return loss.item()

    @torch.no_grad()
    def distance(self):
        return sliced_distance(self.fake(3000), spiral(3000))


def main():
    gan = WGAN()
    logging.info("distance before training %.3f", gan.distance())
    for it in range(1, 131):
        for _ in range(gan.n_critic):
            c = gan.critic_update()
        g = gan.generator_update()
        if it % 10 == 0:
            logging.info("round %d critic %.4f generator %.4f", it, c, g)
        if it % 26 == 0:
            logging.info("round %d distance %.3f", it, gan.distance())


if __name__ == "__main__":
    main()
