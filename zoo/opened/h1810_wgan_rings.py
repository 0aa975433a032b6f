# expect: healthy
# symptom: critic loss is negative, generator loss jumps up, then drifts below zero without a floor, five critic steps per generator step
# axis: none
# mended: none
import math
import time

import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(1)

ZDIM, BATCH, N_CRITIC, GP_WEIGHT = 8, 128, 5, 0.3
ROUNDS = 400


def sensor_pairs(n):
    """Two-dimensional readings: eight modes on a ring, each with its own spread."""
    k = torch.randint(0, 8, (n,))
    angle = k * math.pi / 4
    centre = torch.stack([3 * angle.cos(), 3 * angle.sin()], 1)
    return (centre + torch.randn(n, 2) * (0.1 + 0.03 * k[:, None])) / 2


def mlp(i, o, width=96):
    return nn.Sequential(
        nn.Linear(i, width),
        nn.LeakyReLU(0.1),
        nn.Linear(width, width),
        nn.LeakyReLU(0.1),
        nn.Linear(width, width),
        nn.LeakyReLU(0.1),
        nn.Linear(width, o),
    )


def gradient_penalty(critic, real, fake):
    a = torch.rand(len(real), 1)
    mix = (a * real + (1 - a) * fake).requires_grad_(True)
    (grad,) = torch.autograd.grad(critic(mix).sum(), mix, create_graph=True)
    return ((grad.norm(2, dim=1) - 1) ** 2).mean()


@torch.no_grad()
def modes_hit(gen, n=2000):
    """Share of samples close to a mode, and how many modes get at least 3 % of them."""
    s = gen(torch.randn(n, ZDIM))
    ang = torch.arange(8) * math.pi / 4
    c = torch.stack([1.5 * ang.cos(), 1.5 * ang.sin()], 1)
    d, k = torch.cdist(s, c).min(1)
    good = d < 0.4
    share = torch.bincount(k[good], minlength=8) / n
    return good.float().mean().item(), int((share > 0.03).sum())


class WGAN:
    def __init__(self):
        self.gen, self.critic = mlp(ZDIM, 2), mlp(2, 1)
        self.opt_g = torch.optim.Adam(self.gen.parameters(), lr=1e-3, betas=(0.0, 0.9))
        self.opt_c = torch.optim.Adam(self.critic.parameters(), lr=1e-3, betas=(0.0, 0.9))

    def critic_step(self):
        real = sensor_pairs(BATCH)
        with torch.no_grad():
            fake = self.gen(torch.randn(BATCH, ZDIM))
        loss = self.critic(fake).mean() - self.critic(real).mean()
        gp = gradient_penalty(self.critic, real, fake)
        self.opt_c.zero_grad(set_to_none=True)
        (loss + GP_WEIGHT * gp).backward()
        self.opt_c.step()
        return loss.item(), gp.item()

    def generator_step(self):
        loss = -self.critic(self.gen(torch.randn(BATCH, ZDIM))).mean()
        self.opt_g.zero_grad(set_to_none=True)
        loss.backward()
        self.opt_g.step()
        return loss.item()


def main():
    np.random.seed(0)
    gan = WGAN()
    g_loss = float("nan")
    t0 = time.time()
    for step in range(ROUNDS):
        for _ in range(N_CRITIC):
            c_loss, gp = gan.critic_step()
        g_loss = gan.generator_step()
        if step % 25 == 24:
            near, modes = modes_hit(gan.gen)
            print(
                f"step {step + 1:4d} critic loss {c_loss:+.4f} gp {gp:.4f} g_loss {g_loss:+.4f} "
                f"near a mode {near:.2f} modes {modes} ({time.time() - t0:.1f}s)"
            )


if __name__ == "__main__":
    main()
