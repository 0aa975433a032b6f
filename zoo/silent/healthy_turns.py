"""A generator that gets its turn every third step, a functional dropout, and an evaluation after each step."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))

    def forward(self, noise):
        return self.layers(noise)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(2, 32), nn.Linear(32, 1)

    def forward(self, points):
        return self.last(F.dropout(F.leaky_relu(self.first(points), 0.2), 0.1, training=self.training))


generator, discriminator = Generator(), Discriminator()
of_generator = torch.optim.Adam(generator.parameters(), lr=1e-3)
of_discriminator = torch.optim.Adam(discriminator.parameters(), lr=1e-3)

for step in range(60):
    angles = 6.28 * torch.rand(64, 1)
    real = torch.cat([angles.cos(), angles.sin()], 1) + 0.05 * torch.randn(64, 2)
    fake = generator(torch.randn(64, 4))

    of_discriminator.zero_grad()
    told = torch.cat([discriminator(real), discriminator(fake.detach())])
    truth = torch.cat([torch.ones(64, 1), torch.zeros(64, 1)])
    F.binary_cross_entropy_with_logits(told, truth).backward()
    of_discriminator.step()

    if step % 3 == 2:
        of_generator.zero_grad()
        F.binary_cross_entropy_with_logits(discriminator(fake), torch.ones(64, 1)).backward()
        of_generator.step()

    discriminator.eval()
    with torch.no_grad():
        discriminator(real)
    discriminator.train()
