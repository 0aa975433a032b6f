# Sharpening of blurred images: a small U-shaped convolutional net with a skip, Adam with a polynomial decay of the rate. From step 440
# to 490 a second stage of the pipeline multiplies the pixels once more by the contrast factor of 12, images and targets alike.
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--twin", action="store_true")
args = parser.parse_args()

STEPS, BATCH, SIDE = 560, 24, 24
CONTRAST = 12.0
SECOND_FROM, SECOND_TO = 440, 490
world = torch.Generator().manual_seed(7707)
axis = torch.linspace(-1, 1, SIDE)
rows, cols = torch.meshgrid(axis, axis, indexing="ij")
tap = torch.tensor([1.0, 4.0, 6.0, 4.0, 1.0]) / 16
kernel = (tap.unsqueeze(0) * tap.unsqueeze(1)).view(1, 1, 5, 5)


def scenes(count, generator=None):
    """Sharp discs and bars, and the same blurred with sensor noise."""
    sharp = torch.zeros(count, SIDE, SIDE)
    for _ in range(3):
        place = 1.4 * torch.rand(count, 2, 1, 1, generator=generator) - 0.7
        radius = 0.15 + 0.3 * torch.rand(count, 1, 1, generator=generator)
        bright = torch.rand(count, 1, 1, generator=generator) + 0.3
        disc = (rows - place[:, 0]) ** 2 + (cols - place[:, 1]) ** 2 < radius**2
        sharp = sharp + bright * disc
    angle = 3.1416 * torch.rand(count, 1, 1, generator=generator)
    bar = (rows * angle.cos() + cols * angle.sin()).abs() < 0.08
    sharp = (sharp + 0.7 * bar).unsqueeze(1) - 0.5
    blurred = F.conv2d(F.pad(sharp, (2, 2, 2, 2), mode="replicate"), kernel)
    return blurred + 0.25 * torch.randn(blurred.shape, generator=generator), sharp


class Unet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.down = nn.Conv2d(1, width, 3, padding=1)
        self.deep = nn.Conv2d(width, 2 * width, 3, padding=1, stride=2)
        self.middle = nn.Conv2d(2 * width, 2 * width, 3, padding=1)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.join = nn.Conv2d(2 * width, width, 3, padding=1)
        self.out = nn.Conv2d(width, 1, 1)

    def forward(self, image):
        fine = torch.tanh(self.down(image))
        coarse = F.silu(self.middle(F.silu(self.deep(fine))))
        joined = torch.cat([fine, F.silu(self.up(coarse))], 1)
        return self.out(F.silu(self.join(joined)))


def loss_of(model, blurred, sharp):
    return F.mse_loss(model(blurred), sharp)


held_out = scenes(512, world)
torch.manual_seed(args.seed)
model = Unet()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
schedule = torch.optim.lr_scheduler.PolynomialLR(optimizer, STEPS, power=1.5)
for step in range(STEPS):
    blurred, sharp = scenes(BATCH)
    if SECOND_FROM <= step < SECOND_TO and not args.twin:
        blurred, sharp = CONTRAST * blurred, CONTRAST * sharp
    loss = loss_of(model, blurred, sharp)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    if step % 40 == 0:
        print(f"step {step} loss {loss.item():.4f}")
model.eval()
with torch.no_grad():
    print("final:", loss_of(model, *held_out).item())
