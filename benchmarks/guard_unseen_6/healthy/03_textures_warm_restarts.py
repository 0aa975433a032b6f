# Textures of six kinds in small noisy pictures, a convolutional network with batch statistics. SGD with momentum and a cosine
# that restarts three times from the full rate, each cycle longer.
import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()
torch.set_num_threads(1)

SIDE, KINDS, BATCH, STEPS = 16, 6, 32, 750
world = torch.Generator().manual_seed(83)
rows, columns = torch.meshgrid(torch.arange(float(SIDE)), torch.arange(float(SIDE)), indexing="ij")
turns = torch.arange(KINDS) * math.pi / KINDS


def pictures(count, generator):
    kind = torch.randint(KINDS, (count,), generator=generator)
    angle = (turns[kind] + 0.1 * torch.randn(count, generator=generator))[:, None, None]
    phase = 2 * math.pi * torch.rand(count, 1, 1, generator=generator)
    speed = 0.8 + 0.4 * torch.rand(count, 1, 1, generator=generator)
    wave = torch.sin(speed * (rows * angle.cos() + columns * angle.sin()) + phase)
    return (wave + torch.randn(count, SIDE, SIDE, generator=generator))[:, None], kind


def build(width=16):
    def layer(a, b):
        return [nn.Conv2d(a, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU()]

    return nn.Sequential(
        *layer(1, width),
        *layer(width, width),
        nn.MaxPool2d(2),
        *layer(width, 2 * width),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(2 * width, KINDS),
    )


held_out = pictures(1500, world)
torch.manual_seed(args.seed)
stream = torch.Generator().manual_seed(1300 + args.seed)
model = build()
optimizer = torch.optim.SGD(model.parameters(), lr=0.15, momentum=0.9, weight_decay=1e-3)
schedule = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=50, T_mult=2, eta_min=1e-4)
for step in range(STEPS):
    picture, kind = pictures(BATCH, stream)
    loss = F.cross_entropy(model(picture), kind)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    if step % 50 == 0:
        print(f"{step}: loss {loss.item():.4f} rate {schedule.get_last_lr()[0]:.4f}")
model.eval()
with torch.no_grad():
    print("final:", F.cross_entropy(model(held_out[0]), held_out[1]).item())
