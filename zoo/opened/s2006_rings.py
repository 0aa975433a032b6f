# expect: sick
# symptom: the critic's loss explodes to hundreds of thousands within a few hundred steps, the scores run away and the samples get worse again
# axis: loss
# cause: the gradient penalty is computed without create_graph=True, so it is a constant to autograd, gives the critic no gradient, and nothing holds the critic's Lipschitz constant
# says: create_graph|(gradient )?penalt\w*.{0,80}(no gradient|not differentiable|constant|detach|no effect|does not (train|reach|act|contribute)|doesn'?t (train|reach|contribute)|without (a )?graph|not (part|in|connected|back)|no grad)|(double|second[- ]order) (backward|grad\w*|deriv\w*)
# onset_step: 1
# fix: pass create_graph=True to torch.autograd.grad in the penalty
# mended: yes
import math
import os

import torch
import torch.nn as nn

MENDED = os.environ.get("MENDED") == "1"

LATENT = 8
BATCH = 128
N_CRITIC = 3
LAMBDA = 5.0
ITERS = 190


def real_batch(n, gen):
    k = torch.randint(0, 8, (n,), generator=gen)
    angle = 2 * math.pi * k / 8
    centre = torch.stack([angle.cos(), angle.sin()], 1)
    return centre + 0.08 * torch.randn(n, 2, generator=gen)


def mlp(sizes, act):
    layers = []
    for a, b in zip(sizes[:-1], sizes[1:]):
        layers += [nn.Linear(a, b), act()]
    return nn.Sequential(*layers[:-1])


class WassersteinTrainer:
    def __init__(self, seed=0):
        torch.manual_seed(seed)
        self.gen = torch.Generator().manual_seed(seed + 1)
        self.G = mlp([LATENT, 96, 96, 2], nn.ReLU)
        self.D = mlp([2, 96, 96, 96, 1], lambda: nn.LeakyReLU(0.2))
        self.opt_g = torch.optim.Adam(self.G.parameters(), lr=1e-3, betas=(0.5, 0.9))
        self.opt_d = torch.optim.Adam(self.D.parameters(), lr=2e-3, betas=(0.5, 0.9))

    def sample(self, n):
        return self.G(torch.randn(n, LATENT))

    def penalty(self, real, fake):
        u = torch.rand(len(real), 1)
        mix = (u * real + (1 - u) * fake).requires_grad_(True)
        score = self.D(mix)
        (grad,) = torch.autograd.grad(score.sum(), mix, create_graph=MENDED, retain_graph=True)
        return ((grad.norm(2, dim=1) - 1) ** 2).mean()

    def critic_step(self):
        real = real_batch(BATCH, self.gen)
        with torch.no_grad():
            fake = self.sample(BATCH)
        gap = self.D(fake).mean() - self.D(real).mean()
        loss = gap + LAMBDA * self.penalty(real, fake)
        self.opt_d.zero_grad()
        loss.backward()
        self.opt_d.step()
        return gap.item(), loss.item()

    def generator_step(self):
        for p in self.D.parameters():
            p.requires_grad_(False)
        loss = -self.D(self.sample(BATCH)).mean()
        self.opt_g.zero_grad()
        loss.backward()
        self.opt_g.step()
        for p in self.D.parameters():
            p.requires_grad_(True)
        return loss.item()

    @torch.no_grad()
    def energy_distance(self, n=600):
        x = real_batch(n, torch.Generator().manual_seed(77))
        y = self.sample(n)
        return (2 * torch.cdist(x, y).mean() - torch.cdist(x, x).mean() - torch.cdist(y, y).mean()).item()

    def run(self):
        for it in range(1, ITERS + 1):
            for _ in range(N_CRITIC):
                gap, d_loss = self.critic_step()
            g_loss = self.generator_step()
            if it % 10 == 0:
                print(f"iter {it} critic loss {d_loss:.4f} gap {gap:.4f} generator loss {g_loss:.4f}")
            if it % 50 == 0 or it == ITERS:
                print(f"iter {it} energy distance {self.energy_distance():.4f}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    WassersteinTrainer().run()
