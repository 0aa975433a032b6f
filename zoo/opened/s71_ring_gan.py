# expect: sick
# symptom: both losses look normal for about a hundred steps, then the discriminator's loss becomes inf and everything is NaN
# axis: loss
# cause: the adversarial loss takes log(p) and log(1 - p) of a sigmoid without an epsilon, and p reaches exactly 0 or 1
# says: log\s?\(?.{0,40}(0|zero|eps|clamp|sigmoid|1 ?- ?p|saturat)|eps(ilon)?|bce|with.?logits|satura|(sigmoid|probabilit).{0,40}(0|1|exact|log)
# onset_step: 109
# fix: use binary_cross_entropy_with_logits (or an epsilon within the logarithms)
# mended: computes the loss from the logits
import math
import os

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(64)
MENDED = os.environ.get("MENDED") == "1"
RADIUS = 30  # coordinates in pixels


def real_points(n):
    k = torch.randint(8, (n,)).float() * (2 * math.pi / 8)
    return torch.stack([k.cos(), k.sin()], 1) * RADIUS + 2.0 * torch.randn(n, 2)


def mlp(i, o):
    mods = [nn.Linear(i, 128), nn.LeakyReLU(0.2), nn.Linear(128, 128), nn.LeakyReLU(0.2), nn.Linear(128, o)]
    return nn.Sequential(*mods)


G = mlp(8, 2)
D = mlp(2, 1)
opt_g = torch.optim.Adam(G.parameters(), lr=1e-3, betas=(0.5, 0.999))
opt_d = torch.optim.Adam(D.parameters(), lr=1e-2, betas=(0.5, 0.999))


def bce(logit, real):
    if MENDED:
        return F.binary_cross_entropy_with_logits(logit, torch.full_like(logit, float(real)))
    p = torch.sigmoid(logit)
    return -torch.log(p).mean() if real else -torch.log(1 - p).mean()


def d_loss(real, fake):
    return bce(D(real), True) + bce(D(fake), False)


def g_loss(fake):
    return bce(D(fake), True)


def spread(n=2000):
    """Mean distance of the samples from the ring's radius."""
    with torch.no_grad():
        return ((G(torch.randn(n, 8)) * RADIUS).norm(dim=1) - RADIUS).abs().mean().item()


for step in range(1500):
    for _ in range(2):
        fake = (G(torch.randn(128, 8)) * RADIUS).detach()
        ld = d_loss(real_points(128), fake)
        opt_d.zero_grad()
        ld.backward()
        opt_d.step()
    lg = g_loss(G(torch.randn(128, 8)) * RADIUS)
    opt_g.zero_grad()
    lg.backward()
    opt_g.step()
    if step % 20 == 0 and step < 100 or step % 150 == 0 or step == 1499:
        print(f"step {step} D {ld.item():.4f} G {lg.item():.4f} off the ring {spread():.3f}")
