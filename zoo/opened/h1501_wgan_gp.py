# expect: healthy
# symptom: the critic's loss is negative and swings, first to about -2.5 and then back towards zero (upwards); the generator's loss jumps between 0 and 2 and never goes down
# axis: none
# mended: none
"""WGAN-GP on a ring of eight Gaussians: 4 critic steps for each generator step."""

import math

import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(0)

MODES, LATENT, BATCH = 8, 8, 128
GEN_STEPS, N_CRITIC, LAMBDA = 250, 4, 1.0
RADIUS, STD = 2.0, 0.15


def real_batch(n):
    k = torch.randint(0, MODES, (n,)).float() * 2 * math.pi / MODES
    return torch.stack([RADIUS * k.cos(), RADIUS * k.sin()], 1) + STD * torch.randn(n, 2)


def mlp(i, o, hidden=64):
    return nn.Sequential(
        nn.Linear(i, hidden),
        nn.ReLU(),
        nn.Linear(hidden, hidden),
        nn.ReLU(),
        nn.Linear(hidden, hidden),
        nn.ReLU(),
        nn.Linear(hidden, o),
    )


def gradient_penalty(critic, real, fake):
    a = torch.rand(real.size(0), 1)
    x = (a * real + (1 - a) * fake).requires_grad_(True)
    (grad,) = torch.autograd.grad(critic(x).sum(), x, create_graph=True)
    return ((grad.norm(2, dim=1) - 1) ** 2).mean()


class WGAN:
    def __init__(self):
        self.gen, self.critic = mlp(LATENT, 2), mlp(2, 1)
        self.opt_g = torch.optim.Adam(self.gen.parameters(), lr=1e-3, betas=(0.5, 0.9))
        self.opt_c = torch.optim.Adam(self.critic.parameters(), lr=1e-3, betas=(0.5, 0.9))

    def critic_step(self):
        real = real_batch(BATCH)
        with torch.no_grad():
            fake = self.gen(torch.randn(BATCH, LATENT))
        w = self.critic(real).mean() - self.critic(fake).mean()
        loss = -w + LAMBDA * gradient_penalty(self.critic, real, fake)
        self.opt_c.zero_grad()
        loss.backward()
        self.opt_c.step()
        return loss.item(), w.item()

    def gen_step(self):
        loss = -self.critic(self.gen(torch.randn(BATCH, LATENT))).mean()
        self.opt_g.zero_grad()
        loss.backward()
        self.opt_g.step()
        return loss.item()

    @torch.no_grad()
    def coverage(self, n=2000):
        x = self.gen(torch.randn(n, LATENT))
        k = torch.arange(MODES).float() * 2 * math.pi / MODES
        centres = RADIUS * torch.stack([k.cos(), k.sin()], 1)
        dist, mode = torch.cdist(x, centres).min(1)
        good = dist < 0.6
        covered = sum(int((good & (mode == m)).sum() > n // 100) for m in range(MODES))
        return covered, good.float().mean().item()


def main():
    gan = WGAN()
    for step in range(GEN_STEPS):
        for _ in range(N_CRITIC):
            c_loss, w = gan.critic_step()
        g_loss = gan.gen_step()
        if step % 25 == 0 or step == GEN_STEPS - 1:
            covered, good = gan.coverage()
            print(
                f"step {step:4d} critic loss {c_loss:8.4f} wasserstein {w:7.4f} gen loss {g_loss:8.4f} "
                f"modes {covered}/8 good {good:.2f}"
            )


if __name__ == "__main__":
    main()
