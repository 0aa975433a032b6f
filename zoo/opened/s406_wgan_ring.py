# expect: sick
# symptom: the critic's score gap and loss grow without bound and the generated points fly off instead of covering the ring
# axis: loss
# cause: the gradient penalty's inner gradient is taken without create_graph=True, so the penalty is a constant that gives the critic no gradient and nothing bounds it (no Lipschitz constraint)
# says: create.?graph|gradient.?penalty|\bgp\b|penalty.*(no.?grad|detach|constant|not.*graph|no.*effect)|lipschitz|double.?back|second.?order|critic.*(unbounded|unconstrain|not.*constrain)|(loss.?)?term.*(no.?grad|detach|constant|without.*grad)|detach.*(penalty|term|loss)
# onset_step: 1
# fix: pass create_graph=True to autograd.grad in the penalty
# mended: the critic gap stays of order one and the generated points cover 8 of 8 modes (bare: gap of thousands, critic loss of 1e7, 0 modes)
import math
import os

import torch
import torch.nn as nn

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(17)

Z, BATCH, N_CRITIC, STEPS, LAMBDA = 8, 128, 4, 700, 5.0
ANG = torch.arange(8) * (2 * math.pi / 8)
CENTERS = 2.0 * torch.stack([ANG.cos(), ANG.sin()], 1)


def real_batch(n):
    return CENTERS[torch.randint(0, 8, (n,))] + 0.08 * torch.randn(n, 2)


class Generator(nn.Module):
    def __init__(self, h=96):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(Z, h), nn.ReLU(), nn.Linear(h, h), nn.ReLU(), nn.Linear(h, h), nn.ReLU(), nn.Linear(h, 2)
        )

    def forward(self, n):
        return self.net(torch.randn(n, Z))


class Critic(nn.Module):
    def __init__(self, h=96):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(2, h),
            nn.LeakyReLU(0.2),
            nn.Linear(h, h),
            nn.LeakyReLU(0.2),
            nn.Linear(h, h),
            nn.LeakyReLU(0.2),
            nn.Linear(h, 1),
        )

    def forward(self, x):
        return self.net(x).squeeze(-1)


def penalty(critic, real, fake):
    a = torch.rand(real.size(0), 1)
    x = (a * real + (1 - a) * fake).requires_grad_(True)
    (g,) = torch.autograd.grad(critic(x).sum(), x, create_graph=MENDED)
    return (g.norm(dim=1) - 1).pow(2).mean()


@torch.no_grad()
def coverage(gen, n=2000):
    x = gen(n)
    d = torch.cdist(x, CENTERS)
    near, idx = d.min(1)
    hit = near < 0.4
    modes = sum(((idx == k) & hit).sum().item() > n / 80 for k in range(8))
    return modes, hit.float().mean().item(), near.mean().item()


gen, critic = Generator(), Critic()
opt_g = torch.optim.Adam(gen.parameters(), lr=5e-4, betas=(0.5, 0.9))
opt_c = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.5, 0.9))

for step in range(1, STEPS + 1):
    for _ in range(N_CRITIC):
        real = real_batch(BATCH)
        with torch.no_grad():
            fake = gen(BATCH)
        gap = critic(real).mean() - critic(fake).mean()
        gp = penalty(critic, real, fake)
        loss_c = -gap + LAMBDA * gp
        opt_c.zero_grad()
        loss_c.backward()
        opt_c.step()
    loss_g = -critic(gen(BATCH)).mean()
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()
    if step % 50 == 0 or step == 1:
        m, h, dist = coverage(gen)
        print(
            f"step {step:4d}  critic {loss_c.item():.3f}  gap {gap.item():.3f}  gen {loss_g.item():.3f}  "
            f"modes {m}  hit {h:.2f}  dist {dist:.2f}"
        )

m, h, dist = coverage(gen)
print(f"final modes {m}/8  hit rate {h:.3f}  mean distance to a mode {dist:.3f}  |gap| {abs(gap.item()):.3f}")
