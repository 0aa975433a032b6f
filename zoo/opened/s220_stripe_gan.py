# expect: sick
# symptom: within 20 steps the discriminator is perfect, its loss 0 and the generator's gradient vanishes; the pictures stay noise, far from the stripes
# axis: optimizer
# cause: the discriminator overpowers the generator: twenty times its rate, four steps to one and a loss of the generator that saturates, so the generator gets no gradient
# says: (?i)(discriminator|critic)\w*.{0,80}(overpower|strong|rate|fast|win|satur|perfect|steps|too)|vanish.{0,60}generator|generator.{0,60}(starv|vanish|no gradient)|learning-rate-too-high
# onset_step: 10
# fix: one discriminator step at the generator's rate
# mended: one step at 1e-3
import os

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(220)
D_STEPS, D_RATE = (1, 1e-3) if os.environ.get("MENDED") == "1" else (4, 2e-2)
gen_rng = torch.Generator().manual_seed(21)


def stripes(n):
    p = 6.2832 * torch.rand(n, 1, 1, 1, generator=gen_rng)
    row = torch.arange(8).view(1, 1, 8, 1)
    return (torch.sin(row * 1.57 + p) * 0.8).expand(n, 1, 8, 8) + 0.05 * torch.randn(n, 1, 8, 8, generator=gen_rng)


gen = nn.Sequential(
    nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 64), nn.Tanh(), nn.Unflatten(1, (1, 8, 8))
)
disc = nn.Sequential(
    nn.Flatten(), nn.Linear(64, 96), nn.LeakyReLU(0.2), nn.Linear(96, 48), nn.LeakyReLU(0.2), nn.Linear(48, 1)
)
opt_g = torch.optim.Adam(gen.parameters(), lr=1e-3, betas=(0.5, 0.99))
opt_d = torch.optim.Adam(disc.parameters(), lr=D_RATE, betas=(0.5, 0.99))
one, zero = torch.ones(48, 1), torch.zeros(48, 1)
for step in range(1, 401):
    for _ in range(D_STEPS):
        fake = gen(torch.randn(48, 8)).detach()
        d_loss = F.binary_cross_entropy_with_logits(disc(stripes(48)), one) + F.binary_cross_entropy_with_logits(
            disc(fake), zero
        )
        opt_d.zero_grad()
        d_loss.backward()
        opt_d.step()
    fake = gen(torch.randn(48, 8))
    g_loss = -F.binary_cross_entropy_with_logits(disc(fake), zero)
    opt_g.zero_grad()
    g_loss.backward()
    opt_g.step()
    if step % 20 == 0:
        flat = fake.detach()[:, 0]
        rough = (flat - flat.mean(2, keepdim=True)).square().mean()
        print(
            f"step {step} d {d_loss.item():.4f} g {g_loss.item():.6f} within rows {rough.item():.4f} power {flat.square().mean().item():.3f}"
        )
