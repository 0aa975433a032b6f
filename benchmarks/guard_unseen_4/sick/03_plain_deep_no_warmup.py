# A plain deep network of ReLU layers without normalisation (waveform classes), SGD with momentum. The warm-up of 150 steps was
# written as 150 samples: with 64 a batch, it is over after 2 steps.
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--twin", action="store_true")
args = parser.parse_args()

KINDS, TIME = 10, 64
world = torch.Generator().manual_seed(4103)
frequency = 1 + 0.6 * torch.arange(float(KINDS))
shape = torch.rand(KINDS, generator=world)


def waves(count, generator=None):
    kind = torch.randint(KINDS, (count,), generator=generator)
    phase = 6.28 * torch.rand(count, 1, generator=generator)
    t = torch.linspace(0, 6.28, TIME)
    clean = torch.sin(frequency[kind, None] * t + phase) + shape[kind, None] * torch.cos(2 * frequency[kind, None] * t + phase)
    return clean + 0.5 * torch.randn(count, TIME, generator=generator), kind


x_test, y_test = waves(2000, world)
torch.manual_seed(args.seed)
layers = [nn.Linear(TIME, 128), nn.ReLU()]
for _ in range(10):
    layers += [nn.Linear(128, 128), nn.ReLU()]
net = nn.Sequential(*layers, nn.Linear(128, KINDS))
for layer in net:
    if isinstance(layer, nn.Linear):
        nn.init.kaiming_normal_(layer.weight)
        nn.init.zeros_(layer.bias)
optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
warmup = 150 if args.twin else 150 // 64
for step in range(1200):
    for group in optimizer.param_groups:
        group["lr"] = 0.02 * min(1.0, (step + 1) / warmup) * (1 - step / 1200)
    x, kind = waves(64)
    loss = F.cross_entropy(net(x), kind)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print(f"{step}: {loss.item():.4f}")
with torch.no_grad():
    print("final:", F.cross_entropy(net(x_test), y_test).item())
