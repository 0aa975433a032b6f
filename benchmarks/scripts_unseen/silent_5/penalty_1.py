# expect: sick
# fault: the WGAN-GP penalty calls autograd.grad without create_graph, so the penalty is a constant and has no gradient for the critic
# onset_step: 1
# says: (?i)(create_graph|graph|no gradient|constant)
import torch
import torch.nn as nn
from torch import autograd

torch.set_num_threads(1)
torch.manual_seed(14)

Z, LAMBDA, CRITIC_ITERS, BATCH = 4, 10.0, 4, 128


def real_points(n):
    k = torch.randint(0, 8, (n,)).float() * (3.14159 / 4)
    centre = torch.stack([k.cos(), k.sin()], dim=1) * 2
    return centre + 0.08 * torch.randn(n, 2)


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(Z, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 2))

    def forward(self, z):
        return self.net(z)


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(2, 128), nn.LeakyReLU(0.2), nn.Linear(128, 128), nn.LeakyReLU(0.2), nn.Linear(128, 1)
        )

    def forward(self, x):
        return self.net(x)


def gradient_penalty(critic, real, fake):
    eps = torch.rand(real.size(0), 1)
    mix = (eps * real + (1 - eps) * fake).requires_grad_(True)
    score = critic(mix)
    grads = autograd.grad(
        outputs=score,
        inputs=mix,
        grad_outputs=torch.ones_like(score),
        retain_graph=True,
        only_inputs=True,
    )[0]
    return ((grads.norm(2, dim=1) - 1) ** 2).mean()


gen, critic = Generator(), Critic()
opt_g = torch.optim.Adam(gen.parameters(), lr=2e-4, betas=(0.5, 0.9))
opt_c = torch.optim.Adam(critic.parameters(), lr=2e-4, betas=(0.5, 0.9))

for it in range(1, 61):
    for _ in range(CRITIC_ITERS):
        real = real_points(BATCH)
        with torch.no_grad():
            fake = gen(torch.randn(BATCH, Z))
        gp = gradient_penalty(critic, real, fake)
        loss_c = critic(fake).mean() - critic(real).mean() + LAMBDA * gp
        opt_c.zero_grad()
        loss_c.backward()
        opt_c.step()

    loss_g = -critic(gen(torch.randn(BATCH, Z))).mean()
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()
    if it % 10 == 0:
        print(f"it {it} critic {loss_c.item():.3f} gp {gp.item():.3f} gen {loss_g.item():.3f}")
