# expect: healthy
# symptom: negative critic loss that moves towards zero, a generator loss that rises and wanders, as if the generator were losing
# axis: loss
"""WGAN-GP on a two-dimensional ring of eight Gaussians."""

import math

import torch
from torch import nn, autograd

torch.set_num_threads(1)
torch.manual_seed(77)

K, STD, RADIUS = 8, 0.12, 1.5
CENTRES = torch.tensor(
    [[RADIUS * math.cos(2 * math.pi * k / K), RADIUS * math.sin(2 * math.pi * k / K)] for k in range(K)]
)


def real_batch(n):
    return CENTRES[torch.randint(0, K, (n,))] + STD * torch.randn(n, 2)


def net(i, o, width=96):
    return nn.Sequential(
        nn.Linear(i, width),
        nn.LeakyReLU(0.2),
        nn.Linear(width, width),
        nn.LeakyReLU(0.2),
        nn.Linear(width, width),
        nn.LeakyReLU(0.2),
        nn.Linear(width, o),
    )


gen, critic = net(8, 2), net(2, 1)
ema = net(8, 2)
ema.load_state_dict(gen.state_dict())
opt_g = torch.optim.Adam(gen.parameters(), lr=1e-3, betas=(0.0, 0.9))
opt_d = torch.optim.Adam(critic.parameters(), lr=2e-3, betas=(0.0, 0.9))
BATCH, N_CRITIC, LAMBDA, STEPS = 192, 4, 0.3, 800


def penalty(x, y):
    t = torch.rand(len(x), 1)
    z = (t * x + (1 - t) * y).requires_grad_(True)
    (g,) = autograd.grad(critic(z).sum(), z, create_graph=True)
    return ((g.norm(dim=1) - 1) ** 2).mean()


@torch.no_grad()
def coverage(n=2000):
    d = torch.cdist(ema(torch.randn(n, 8)), CENTRES)
    near, which = d.min(1)
    good = near < 4 * STD
    modes = torch.bincount(which[good], minlength=K)
    return good.float().mean().item(), int((modes > n * 0.02).sum())


for step in range(1, STEPS + 1):
    for _ in range(N_CRITIC):
        x = real_batch(BATCH)
        with torch.no_grad():
            y = gen(torch.randn(BATCH, 8))
        d_loss = critic(y).mean() - critic(x).mean() + LAMBDA * penalty(x, y)
        opt_d.zero_grad()
        d_loss.backward()
        opt_d.step()
    g_loss = -critic(gen(torch.randn(BATCH, 8))).mean()
    opt_g.zero_grad()
    g_loss.backward()
    opt_g.step()
    with torch.no_grad():
        decay = min(0.98, step / (step + 10))
        for a, b in zip(ema.parameters(), gen.parameters()):
            a.lerp_(b, 1 - decay)
    if step % 50 == 0 or step == 1:
        frac, modes = coverage()
        print(
            f"gen step {step:4d}  D {d_loss.item():+.4f}  G {g_loss.item():+.4f}  on-mode {frac:.3f}  modes {modes}/{K}"
        )
