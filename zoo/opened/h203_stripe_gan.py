# expect: healthy
# symptom: resembles a discriminator that overpowers: its loss falls below ln 4 and it is ahead of the generator most of the time, both losses swing
# note: usual settings; the pictures become stripes (variance within rows falls from 0.14 to 0.02 while the power gets to the 0.32 of the data)
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(233)
gen_rng = torch.Generator().manual_seed(33)


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
opt_g = torch.optim.Adam(gen.parameters(), lr=2e-3, betas=(0.5, 0.99))
opt_d = torch.optim.Adam(disc.parameters(), lr=2e-3, betas=(0.5, 0.99))
one, zero = torch.ones(48, 1), torch.zeros(48, 1)
for step in range(1, 501):
    fake = gen(torch.randn(48, 8))
    d_loss = F.binary_cross_entropy_with_logits(disc(stripes(48)), one) + F.binary_cross_entropy_with_logits(
        disc(fake.detach()), zero
    )
    opt_d.zero_grad()
    d_loss.backward()
    opt_d.step()
    g_loss = F.binary_cross_entropy_with_logits(disc(fake), one)
    opt_g.zero_grad()
    g_loss.backward()
    opt_g.step()
    if step % 20 == 0:
        flat = fake.detach()[:, 0]
        rough = (flat - flat.mean(2, keepdim=True)).square().mean()
        print(
            f"step {step} d {d_loss.item():.4f} g {g_loss.item():.4f} within rows {rough.item():.4f} power {flat.square().mean().item():.3f}"
        )
