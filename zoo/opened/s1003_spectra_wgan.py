# expect: sick
# symptom: critic loss runs away to thousands, then millions, generator loss follows, samples stay poor
# axis: loss
# cause: the gradient penalty of the WGAN is computed with autograd.grad without create_graph=True, so the penalty is a constant for the optimizer and has no gradient; the critic is unconstrained and diverges
# says: create_graph|(penalty|gp|lipschitz|1-lipschitz).{0,150}(no (effect|gradient|grad|graph|influence)|constant|detach\w*|graph|not (differentiable|back|reach|connected|applied|enforced|train|constrain)|never|inactive|without|unconstrained|does(n't| not)|second|double|missing|lost)|(unconstrained|unbounded|not lipschitz|no lipschitz).{0,60}|double backward|second[- ]order grad
# onset_step: 4
# fix: autograd.grad(..., create_graph=True)
# mended: create_graph=True is passed to autograd.grad
import os
import time

import numpy as np
import torch
import torch.nn as nn

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(3)
rng = np.random.default_rng(3)

Z, BINS, BATCH = 16, 64, 64
N_CRITIC, GP_WEIGHT = 3, 10.0


def spectra(n):
    """one to three peaks on a falling baseline, as from a small spectrometer"""
    x = np.linspace(0, 1, BINS)[None]
    y = 0.3 * np.exp(-3 * x) * rng.uniform(0.7, 1.3, (n, 1))
    for j in range(3):
        on = rng.random((n, 1)) < [1.0, 0.6, 0.3][j]
        mu = 0.2 + 0.28 * j + rng.normal(0, 0.04, (n, 1))
        w = rng.uniform(0.02, 0.05, (n, 1))
        y = y + on * rng.uniform(0.5, 1.0, (n, 1)) * np.exp(-((x - mu) ** 2) / (2 * w**2))
    return torch.tensor(y + rng.normal(0, 0.01, y.shape), dtype=torch.float32)


class Generator(nn.Module):
    def __init__(self, h=128):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(Z, h), nn.ReLU(), nn.Linear(h, h), nn.ReLU(), nn.Linear(h, BINS))

    def forward(self, z):
        return self.net(z)


class Critic(nn.Module):
    def __init__(self, c=24, h=128):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv1d(1, c, 5, 2, 2), nn.LeakyReLU(0.2), nn.Conv1d(c, 2 * c, 5, 2, 2), nn.LeakyReLU(0.2)
        )
        self.fc = nn.Sequential(nn.Flatten(), nn.Linear(2 * c * BINS // 4, h), nn.LeakyReLU(0.2), nn.Linear(h, 1))

    def forward(self, x):
        return self.fc(self.conv(x.unsqueeze(1))).squeeze(1)


class WGAN:
    def __init__(self):
        self.gen, self.critic = Generator(), Critic()
        self.opt_g = torch.optim.Adam(self.gen.parameters(), lr=5e-4, betas=(0.0, 0.9))
        self.opt_c = torch.optim.Adam(self.critic.parameters(), lr=1e-3, betas=(0.0, 0.9))

    def penalty(self, real, fake):
        a = torch.rand(len(real), 1)
        mix = (a * real + (1 - a) * fake).requires_grad_(True)
        score = self.critic(mix)
        (grad,) = torch.autograd.grad(score.sum(), mix, retain_graph=True, create_graph=MENDED)
        return ((grad.norm(2, dim=1) - 1) ** 2).mean()

    def critic_step(self, real):
        with torch.no_grad():
            fake = self.gen(torch.randn(len(real), Z))
        loss = self.critic(fake).mean() - self.critic(real).mean() + GP_WEIGHT * self.penalty(real, fake)
        self.opt_c.zero_grad()
        loss.backward()
        self.opt_c.step()
        with torch.no_grad():
            gap = (self.critic(real).mean() - self.critic(fake).mean()).item()
        return loss.item(), gap

    def gen_step(self):
        loss = -self.critic(self.gen(torch.randn(BATCH, Z))).mean()
        self.opt_g.zero_grad()
        loss.backward()
        self.opt_g.step()
        return loss.item()

    @torch.no_grad()
    def quality(self, data):
        s = self.gen(torch.randn(1024, Z))
        return ((s.mean(0) - data.mean(0)).abs().mean() + (s.std(0) - data.std(0)).abs().mean()).item()


def main():
    data = spectra(5000)
    gan, t0 = WGAN(), time.time()
    for step in range(1, 301):
        for _ in range(N_CRITIC):
            c_loss, gap = gan.critic_step(data[torch.randint(0, len(data), (BATCH,))])
        g_loss = gan.gen_step()
        if step % 10 == 0 or step == 1:
            print(
                f"step {step:4d} critic loss {c_loss:.4f} wasserstein {gap:.4f} gen loss {g_loss:.4f} "
                f"stat distance {gan.quality(data):.4f} t {time.time() - t0:.1f}s",
                flush=True,
            )


main()
