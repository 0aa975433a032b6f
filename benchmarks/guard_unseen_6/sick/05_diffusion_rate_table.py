# A diffusion model of points on a ring of six clusters: a network guesses the noise from the noisy point and the time. Adam, with
# a rate read from a table.
import argparse
import math

import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--twin", action="store_true")
args = parser.parse_args()
torch.set_num_threads(1)

LEVELS, BATCH, STEPS = 100, 512, 1200
world = torch.Generator().manual_seed(65)
keep = torch.cumprod(1 - torch.linspace(1e-3, 0.08, LEVELS), 0)
table = [(0, 3e-3), (500, 1.5e-3), (800, 8e-4 if args.twin else 8e-2)]


def samples(count, generator):
    which = torch.randint(6, (count,), generator=generator)
    angle = which * (math.pi / 3)
    centre = torch.stack((angle.cos(), angle.sin()), 1) * 1.5
    x = centre + 0.04 * torch.randn(count, 2, generator=generator)
    t = torch.randint(LEVELS, (count,), generator=generator)
    noise = torch.randn(count, 2, generator=generator)
    mixed = keep[t].sqrt()[:, None] * x + (1 - keep[t]).sqrt()[:, None] * noise
    return mixed, t, noise


class Denoiser(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.register_buffer("waves", 2.0 ** torch.arange(0, 6) * math.pi / 2)
        self.net = nn.Sequential(
            nn.Linear(14, width),
            nn.SiLU(),
            nn.Linear(width, width),
            nn.SiLU(),
            nn.Linear(width, width),
            nn.SiLU(),
            nn.Linear(width, 2),
        )

    def forward(self, x, t):
        phase = (t / LEVELS)[:, None] * self.waves
        return self.net(torch.cat((x, phase.sin(), phase.cos()), 1))


def cost(model, mixed, t, noise):
    return (model(mixed, t) - noise).square().mean()


held_out = samples(20000, world)
torch.manual_seed(args.seed)
stream = torch.Generator().manual_seed(500 + args.seed)
model = Denoiser()
optimizer = torch.optim.Adam(model.parameters(), lr=table[0][1], betas=(0.9, 0.99))
for step in range(STEPS):
    for start, rate in table:
        if step == start:
            optimizer.param_groups[0]["lr"] = rate
    loss = cost(model, *samples(BATCH, stream))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 60 == 0:
        print(step, f"{loss.item():.5f}")
with torch.no_grad():
    print("final:", cost(model, *held_out).item())
