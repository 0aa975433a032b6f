# expect: healthy
# symptom: resembles a GAN whose discriminator learns nothing: its loss creeps up to 2 ln 2 and stays there, the generator loss is noisy and never falls
# axis: loss
"""GAN with R1 penalty on a 2-D ring of Gaussians, with mode coverage as the quality measure."""

import math
import os

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import autograd

torch.set_num_threads(1)
torch.manual_seed(3)

MODES, RADIUS, STD = 8, 2.0, 0.15
Z_DIM, BATCH, GAMMA = 4, 512, 0.05
G_STEPS = int(os.environ.get("G_STEPS", 450))

angles = torch.arange(MODES) * (2 * math.pi / MODES)
centres = RADIUS * torch.stack([angles.cos(), angles.sin()], 1)


def real_batch(n):
    k = torch.randint(MODES, (n,))
    return centres[k] + STD * torch.randn(n, 2)


def mlp(i, o, h, act):
    return nn.Sequential(nn.Linear(i, h), act(), nn.Linear(h, h), act(), nn.Linear(h, h), act(), nn.Linear(h, o))


G = mlp(Z_DIM, 2, 96, nn.ReLU)
D = mlp(2, 1, 96, lambda: nn.LeakyReLU(0.2))
opt_g = torch.optim.Adam(G.parameters(), lr=1e-3, betas=(0.5, 0.95))
opt_d = torch.optim.Adam(D.parameters(), lr=2e-3, betas=(0.5, 0.95))


def r1(x):
    x = x.requires_grad_(True)
    score = D(x)
    (grad,) = autograd.grad(score.sum(), x, create_graph=True)
    return score, grad.pow(2).sum(1).mean()


@torch.no_grad()
def quality(n=2000):
    """Fraction of samples within 4 std of a mode, and number of modes with a fair share."""
    s = G(torch.randn(n, Z_DIM))
    dist, which = torch.cdist(s, centres).min(1)
    good = dist < 4 * STD
    share = torch.bincount(which[good], minlength=MODES).float() / n
    return good.float().mean().item(), int((share > 0.3 / MODES).sum())


for step in range(1, G_STEPS + 1):
    with torch.no_grad():
        fake = G(torch.randn(BATCH, Z_DIM))
    on_real, penalty = r1(real_batch(BATCH))
    d_loss = F.softplus(-on_real).mean() + F.softplus(D(fake)).mean()
    opt_d.zero_grad(set_to_none=True)
    (d_loss + 0.5 * GAMMA * penalty).backward()
    opt_d.step()

    for p in D.parameters():
        p.requires_grad_(False)
    g_loss = F.softplus(-D(G(torch.randn(BATCH, Z_DIM)))).mean()
    opt_g.zero_grad(set_to_none=True)
    g_loss.backward()
    opt_g.step()
    for p in D.parameters():
        p.requires_grad_(True)

    if step % 50 == 0:
        frac, modes = quality()
        print(
            f"{step:4d}  disc {d_loss.item():+.3f}  gen {g_loss.item():+.3f}  "
            f"on-mode {frac:.2f}  modes {modes}/{MODES}",
            flush=True,
        )

frac, modes = quality(8000)
print(f"final: {frac:.3f} of samples on a mode, {modes} of {MODES} modes covered")
