# expect: sick
# symptom: within 20 steps the discriminator loss goes to 0 and the generator stands still; the samples never reach the ring
# axis: optimizer
# cause: the discriminator overpowers the generator: 15 times its fitting rate and five steps to one, so the generator gets no gradient
# says: (?i)(discriminator|critic).{0,80}(overpower|strong|rate|fast|win|satur|perfect|steps)|vanish.{0,60}generator|generator.{0,60}(starv|vanish|no gradient)
# onset_step: 20
# fix: one discriminator step at 2e-3 for each generator step
# mended: MENDED=1 python s21_ring_gan.py
import os

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(22)
EVEN = os.environ.get("MENDED") == "1"
D_STEPS, D_RATE = (1, 2e-3) if EVEN else (5, 3e-2)


def ring(n):
    g = torch.Generator().manual_seed(1)
    a = 6.2832 * torch.rand(n, generator=g)
    return TensorDataset(torch.stack([a.cos(), a.sin()], 1) * 2 + 3 + 0.05 * torch.randn(n, 2, generator=g))


gen = nn.Sequential(nn.Linear(4, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 2))
disc = nn.Sequential(nn.Linear(2, 48), nn.LeakyReLU(0.2), nn.Linear(48, 48), nn.LeakyReLU(0.2), nn.Linear(48, 1))
opt_g = torch.optim.Adam(gen.parameters(), lr=1e-3, betas=(0.5, 0.9))
opt_d = torch.optim.Adam(disc.parameters(), lr=D_RATE, betas=(0.5, 0.9))
one, zero = torch.ones(64, 1), torch.zeros(64, 1)
step = 0
for (real,) in DataLoader(ring(64 * 400), batch_size=64, shuffle=True):
    for _ in range(D_STEPS):
        fake = gen(torch.randn(64, 4)).detach()
        d_loss = F.binary_cross_entropy_with_logits(disc(real), one)
        d_loss = d_loss + F.binary_cross_entropy_with_logits(disc(fake), zero)
        opt_d.zero_grad()
        d_loss.backward()
        opt_d.step()
    fake = gen(torch.randn(64, 4))
    g_loss = -F.binary_cross_entropy_with_logits(disc(fake), zero)
    opt_g.zero_grad()
    g_loss.backward()
    opt_g.step()
    step += 1
    if step % 20 == 0:
        off = ((fake - 3).norm(dim=1) - 2).abs().mean()
        print(f"step {step} d {d_loss.item():.4f} g {g_loss.item():.4f} off the ring {off.item():.3f}")
