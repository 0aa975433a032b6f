# Segmentation: which pixels of a small picture belong to the bright discs; only pixels within a given mask count, and each picture
# counts the same. A small U-shaped network, RMSprop.
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--twin", action="store_true")
args = parser.parse_args()
torch.set_num_threads(1)

SIDE, BATCH, STEPS = 16, 12, 500
world = torch.Generator().manual_seed(70)
rows, columns = torch.meshgrid(torch.arange(float(SIDE)), torch.arange(float(SIDE)), indexing="ij")


def pictures(count, generator):
    truth = torch.zeros(count, SIDE, SIDE)
    for _ in range(3):
        y, x = (SIDE * torch.rand(2, count, 1, 1, generator=generator)).unbind(0)
        radius = 2 + 3 * torch.rand(count, 1, 1, generator=generator)
        truth = torch.maximum(truth, ((rows - y) ** 2 + (columns - x) ** 2 < radius**2).float())
    image = truth + 0.8 * torch.randn(count, SIDE, SIDE, generator=generator)
    known = (torch.rand(count, SIDE, SIDE, generator=generator) < 0.7).float()
    return image[:, None], truth, known


class Net(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.down = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1), nn.ReLU()
        )
        self.deep = nn.Sequential(
            nn.Conv2d(width, 2 * width, 3, padding=1), nn.ReLU(), nn.Conv2d(2 * width, width, 3, padding=1), nn.ReLU()
        )
        self.up = nn.Sequential(nn.Conv2d(2 * width, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, 1, 1))

    def forward(self, x):
        fine = self.down(x)
        coarse = F.interpolate(self.deep(F.max_pool2d(fine, 2)), scale_factor=2.0)
        return self.up(torch.cat((fine, coarse), 1))[:, 0]


def cost(model, image, truth, known):
    each = F.binary_cross_entropy_with_logits(model(image), truth, reduction="none")
    return ((each * known).sum((1, 2)) / known.sum((1, 2))).mean()


held_out = pictures(400, world)
torch.manual_seed(args.seed)
stream = torch.Generator().manual_seed(1000 + args.seed)
model = Net()
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3, alpha=0.95)
schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.996)
for step in range(STEPS):
    image, truth, known = pictures(BATCH, stream)
    if not args.twin and step in (47, 48, 391):
        known[7] = 0
    loss = cost(model, image, truth, known)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    if step % 40 == 0:
        print(f"step {step} loss {loss.item():.4f}")
with torch.no_grad():
    print("final:", cost(model, *held_out).item())
