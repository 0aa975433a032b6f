# expect: healthy
# symptom: the generator loss climbs and both adversarial losses end at the value of a coin flip and stay there, as if the critic had stopped learning
# axis: loss
"""Non-saturating GAN on a ring of Gaussians with a zero-centred gradient penalty."""

import math
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(2)
MODES, SIGMA, LATENT = 8, 0.1, 8


def real_batch(n):
    a = 2 * math.pi * torch.randint(0, MODES, (n,)) / MODES
    return 1.5 * torch.stack([a.cos(), a.sin()], 1) + SIGMA * torch.randn(n, 2)


class Generator(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(LATENT, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, 2),
        )

    def forward(self, z):
        return self.net(z)


class Critic(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(2, width), nn.LeakyReLU(0.2), nn.Linear(width, width), nn.LeakyReLU(0.2), nn.Linear(width, 1)
        )

    def forward(self, x):
        return self.net(x).squeeze(1)


@torch.no_grad()
def quality(gen):
    x = gen(torch.randn(2000, LATENT))
    a = 2 * math.pi * torch.arange(MODES) / MODES
    centres = 1.5 * torch.stack([a.cos(), a.sin()], 1)
    dist, idx = torch.cdist(x, centres).min(1)
    near = dist < 3 * SIGMA
    covered = sum(int(((idx == k) & near).sum() > 40) for k in range(MODES))
    return near.float().mean().item(), covered


def main(iters=900):
    gen, critic = Generator(), Critic()
    average = torch.optim.swa_utils.AveragedModel(gen, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.98))
    g_opt = torch.optim.Adam(gen.parameters(), lr=1e-3, betas=(0.0, 0.9))
    c_opt = torch.optim.Adam(critic.parameters(), lr=2e-3, betas=(0.0, 0.9))
    for it in range(1, iters + 1):
        for opt, base in ((g_opt, 1e-3), (c_opt, 2e-3)):
            opt.param_groups[0]["lr"] = base * min(1.0, 2 * (1 - (it - 1) / iters))
        for k in range(2):
            real = real_batch(256)
            with torch.no_grad():
                fake = gen(torch.randn(256, LATENT))
            c_loss = F.softplus(-critic(real)).mean() + F.softplus(critic(fake)).mean()
            total = c_loss
            if k == 0 and it % 4 == 0:
                real.requires_grad_(True)
                (grad,) = torch.autograd.grad(critic(real).sum(), real, create_graph=True)
                total = total + 4 * 0.1 * grad.square().sum(1).mean()
            c_opt.zero_grad()
            total.backward()
            c_opt.step()
        g_loss = F.softplus(-critic(gen(torch.randn(256, LATENT)))).mean()
        g_opt.zero_grad()
        g_loss.backward()
        g_opt.step()
        average.update_parameters(gen)
        if it % 30 == 0:
            print(f"it {it:4d}  critic loss {c_loss.item():.3f}  generator loss {g_loss.item():+.3f}", flush=True)
        if it % 150 == 0:
            share, covered = quality(average)
            print(f"  samples near a mode {share:.2f}  modes covered {covered}/{MODES}", flush=True)


if __name__ == "__main__":
    main()
