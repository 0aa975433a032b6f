# Shapes of small synthetic galaxies: a convolutional net with group norm, SGD with Nesterov momentum. From step 360 on the loader
# hands out batches of 2 instead of 64 (the job was moved to a smaller card) and the rate stays as it was.
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--twin", action="store_true")
args = parser.parse_args()

STEPS, SIDE, KINDS = 850, 16, 5
MOVED = 360
world = torch.Generator().manual_seed(7202)
axis = torch.linspace(-1, 1, SIDE)
rows, cols = torch.meshgrid(axis, axis, indexing="ij")


def galaxies(count, generator=None):
    kind = torch.randint(KINDS, (count,), generator=generator)
    angle = torch.rand(count, 1, 1, generator=generator) * 6.2832
    middle = 0.2 * torch.randn(count, 2, 1, 1, generator=generator)
    y, x = rows - middle[:, 0], cols - middle[:, 1]
    u = x * angle.cos() + y * angle.sin()
    v = y * angle.cos() - x * angle.sin()
    radius = (x * x + y * y + 1e-4).sqrt()
    turn = torch.atan2(v, u)
    disc = torch.exp(-4 * radius)
    ellipse = torch.exp(-3 * (u * u + 6 * v * v).sqrt())
    spiral = torch.exp(-2 * radius) * (1 + torch.cos(2 * turn + 7 * radius)) / 2
    mirror = torch.exp(-2 * radius) * (1 + torch.cos(2 * turn - 7 * radius)) / 2
    ring = torch.exp(-30 * (radius - 0.5) ** 2)
    all_kinds = torch.stack([disc, ellipse, spiral, mirror, ring], 1)
    image = all_kinds[torch.arange(count), kind]
    image = 2 * image + 1.05 * torch.randn(count, SIDE, SIDE, generator=generator)
    return image.unsqueeze(1), kind


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.GroupNorm(4, 16),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.GroupNorm(4, 32),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 32, 3, padding=1),
            nn.GroupNorm(4, 32),
            nn.ReLU(),
        )
        self.out = nn.Linear(32 * 16, KINDS)

    def forward(self, image):
        return self.out(self.layers(image).flatten(1))


def loss_of(model, image, kind):
    return F.cross_entropy(model(image), kind)


held_out = galaxies(3000, world)
torch.manual_seed(args.seed)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, nesterov=True, weight_decay=1e-4)
schedule = torch.optim.lr_scheduler.LambdaLR(
    optimizer, lambda s: 1.0 if s < 300 else 1.0 - 0.85 * (s - 300) / (STEPS - 300)
)
for step in range(STEPS):
    count = 2 if step >= MOVED and not args.twin else 64
    image, kind = galaxies(count)
    loss = loss_of(model, image, kind)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    if step % 50 == 0:
        print(f"step {step} loss {loss.item():.4f}")
model.eval()
with torch.no_grad():
    print("final:", loss_of(model, *held_out).item())
