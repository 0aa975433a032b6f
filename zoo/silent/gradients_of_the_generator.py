"""All gradients are cleared once an iteration: the generator's loss leaves one in the discriminator."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

generator = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
discriminator = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
of_generator = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.9))
of_discriminator = torch.optim.Adam(discriminator.parameters(), lr=1e-3, betas=(0.5, 0.9))
ones, zeros = torch.ones(64, 1), torch.zeros(64, 1)

for step in range(1, 201):
    angle = 6.28 * torch.rand(64, 1)
    real = torch.cat([angle.cos(), angle.sin()], 1)
    of_generator.zero_grad()
    of_discriminator.zero_grad()
    fake = generator(torch.randn(64, 4))
    loss = F.binary_cross_entropy_with_logits(discriminator(fake), ones)
    loss.backward()
    of_generator.step()
    on_real, on_fake = discriminator(real), discriminator(fake.detach())
    loss = F.binary_cross_entropy_with_logits(on_real, ones) + F.binary_cross_entropy_with_logits(on_fake, zeros)
    loss.backward()  # <- bites
    of_discriminator.step()
