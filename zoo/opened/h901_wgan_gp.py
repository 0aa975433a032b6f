# expect: healthy
# symptom: the critic's loss hovers about zero with changing sign and never falls, the generator's loss wanders up and down: it looks like a diverging GAN
# axis: loss
# cause: healthy: Wasserstein losses have no lower bound and an arbitrary offset; the samples approach the data (the sliced Wasserstein distance falls from 1 to about 0.15)
# says: none
# onset_step: none
# fix: none
# mended: none
import copy

import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(42)

N_CRITIC, BATCH, NZ, LAMBDA = 3, 192, 2, 1.0


def sample_rings(n):
    """Points on two rings with a little noise, in 2-D."""
    ang = torch.rand(n) * 6.2832
    rad = torch.where(torch.rand(n) < 0.5, 1.0, 2.2) + 0.06 * torch.randn(n)
    return torch.stack([rad * ang.cos(), rad * ang.sin()], 1)


def mlp(i, o, h=96):
    return nn.Sequential(
        nn.Linear(i, h),
        nn.LeakyReLU(0.2),
        nn.Linear(h, h),
        nn.LeakyReLU(0.2),
        nn.Linear(h, h),
        nn.LeakyReLU(0.2),
        nn.Linear(h, o),
    )


def gradient_penalty(critic, real, fake):
    a = torch.rand(len(real), 1)
    x = (a * real + (1 - a) * fake).requires_grad_(True)
    (grad,) = torch.autograd.grad(critic(x).sum(), x, create_graph=True)
    return ((grad.norm(dim=1) - 1) ** 2).mean()


@torch.no_grad()
def sliced_wasserstein(a, b, n_proj=64):
    g = torch.Generator().manual_seed(0)
    d = torch.randn(2, n_proj, generator=g)
    d = d / d.norm(dim=0)
    return ((a @ d).sort(0).values - (b @ d).sort(0).values).abs().mean().item()


class WGANTrainer:
    def __init__(self):
        self.gen, self.critic = mlp(NZ, 2), mlp(2, 1)
        self.ema = copy.deepcopy(self.gen).requires_grad_(False)
        self.opt_g = torch.optim.Adam(self.gen.parameters(), lr=1e-3, betas=(0.5, 0.9))
        self.opt_c = torch.optim.Adam(self.critic.parameters(), lr=1e-3, betas=(0.5, 0.9))

    def critic_step(self):
        real = sample_rings(BATCH)
        with torch.no_grad():
            fake = self.gen(torch.randn(BATCH, NZ))
        gp = gradient_penalty(self.critic, real, fake)
        loss = self.critic(fake).mean() - self.critic(real).mean() + LAMBDA * gp
        self.opt_c.zero_grad()
        loss.backward()
        self.opt_c.step()
        return loss.item(), gp.item()

    def generator_step(self):
        loss = -self.critic(self.gen(torch.randn(BATCH, NZ))).mean()
        self.opt_g.zero_grad()
        loss.backward()
        self.opt_g.step()
        with torch.no_grad():
            for avg, p in zip(self.ema.parameters(), self.gen.parameters()):
                avg.lerp_(p, 0.05)
        return loss.item()

    def fit(self, steps):
        decay = [torch.optim.lr_scheduler.LinearLR(o, 1.0, 0.02, steps) for o in (self.opt_g, self.opt_c)]
        for step in range(steps):
            for _ in range(N_CRITIC):
                loss_c, gp = self.critic_step()
            loss_g = self.generator_step()
            for sched in decay:
                sched.step()
            if step % 10 == 0 or step == steps - 1:
                with torch.no_grad():
                    swd = sliced_wasserstein(self.ema(torch.randn(3000, NZ)), sample_rings(3000))
                print(f"step {step:4d} loss_C {loss_c:+.4f} gp {gp:.4f} loss_G {loss_g:+.4f} swd {swd:.4f}")


if __name__ == "__main__":
    WGANTrainer().fit(200)
