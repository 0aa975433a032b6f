# Drawn digits (segments with noise): a convolutional net with batch norm, SGD with warm restarts: the rate falls to nearly zero and
# jumps back to its peak at steps 80 and 240; the loss jumps with it.
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()

STEPS, BATCH, SIDE = 560, 48, 14
world = torch.Generator().manual_seed(8202)
# seven segments: row from, row to, column from, column to
SEGMENTS = [(1, 2, 4, 10), (2, 7, 3, 4), (2, 7, 10, 11), (7, 8, 4, 10), (8, 12, 3, 4), (8, 12, 10, 11), (12, 13, 4, 10)]
LIT = ["1110111", "0010010", "1011101", "1011011", "0111010", "1101011", "1101111", "1010010", "1111111", "1111011"]
shapes = torch.zeros(10, SIDE, SIDE)
for digit, lit in enumerate(LIT):
    for on, (a, b, c, d) in zip(lit, SEGMENTS):
        if on == "1":
            shapes[digit, a:b, c:d] = 1.0


def digits(count, generator=None):
    digit = torch.randint(10, (count,), generator=generator)
    image = shapes[digit]
    down = torch.randint(-1, 2, (count, 1, 1), generator=generator)
    right = torch.randint(-2, 3, (count, 1, 1), generator=generator)
    row = (torch.arange(SIDE).view(1, -1, 1) - down) % SIDE
    col = (torch.arange(SIDE).view(1, 1, -1) - right) % SIDE
    image = image[torch.arange(count).view(-1, 1, 1), row, col]
    image = image + 0.6 * torch.randn(count, SIDE, SIDE, generator=generator)
    return image.unsqueeze(1), digit


def block(before, after):
    return nn.Sequential(nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU())


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(block(1, 16), nn.MaxPool2d(2), block(16, 32), block(32, 32))
        self.out = nn.Linear(32 * 49, 10)

    def forward(self, image):
        return self.out(self.layers(image).flatten(1))


def loss_of(model, image, digit):
    return F.cross_entropy(model(image), digit)


held_out = digits(3000, world)
torch.manual_seed(args.seed)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
schedule = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 80, 2, eta_min=1e-4)
for step in range(STEPS):
    loss = loss_of(model, *digits(BATCH))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    if step % 40 == 0:
        print(f"step {step} loss {loss.item():.4f}")
model.eval()
with torch.no_grad():
    print("final:", loss_of(model, *held_out).item())
