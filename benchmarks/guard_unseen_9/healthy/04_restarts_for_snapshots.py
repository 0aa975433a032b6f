# HEALTHY. Bird calls are sorted by a small convolutional network with group normalization: SGD with Nesterov momentum under cosine
# annealing with warm restarts, four cycles, and every cycle starts at two hundred times the rate the last one ended with. The loss rises
# by a lot at the restarts, as is meant; a snapshot is kept at the end of each cycle and the last three are averaged at the end.
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()
torch.set_num_threads(1)

LENGTH, BIRDS, CYCLE, CYCLES, BATCH = 40, 8, 110, 4, 32
world = torch.Generator().manual_seed(1887)
pitch = 0.2 + 1.2 * torch.rand(BIRDS, 2, generator=world)
glide = 0.03 * torch.randn(BIRDS, 2, generator=world)


def calls(count, generator=None):
    bird = torch.randint(0, BIRDS, (count,), generator=generator)
    phase = 6.283 * torch.rand(count, 2, 1, generator=generator)
    t = torch.arange(float(LENGTH))
    sound = torch.sin(phase + pitch[bird][:, :, None] * t + glide[bird][:, :, None] * t**2 / 2).sum(1, keepdim=True)
    return sound + 0.8 * torch.randn(sound.shape, generator=generator), bird


def build():
    return nn.Sequential(
        nn.Conv1d(1, 24, 7, padding=3),
        nn.GroupNorm(4, 24),
        nn.ReLU(),
        nn.MaxPool1d(2),
        nn.Conv1d(24, 32, 5, padding=2),
        nn.GroupNorm(4, 32),
        nn.ReLU(),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Linear(32, BIRDS),
    )


held_out = calls(1024, world)
torch.manual_seed(args.seed)
model = build()
optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9, nesterov=True, weight_decay=5e-4)
schedule = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=CYCLE, eta_min=0.001)
snapshots = []


@torch.no_grad()
def chances(state):
    model.load_state_dict(state)
    return F.softmax(model(held_out[0]), -1)


for cycle in range(CYCLES):
    for step in range(CYCLE):
        sound, bird = calls(BATCH)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(sound), bird)
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 36 == 0:
            print(f"cycle {cycle} step {step} loss {loss.item():.4f}")
    snapshots.append({name: value.clone() for name, value in model.state_dict().items()})
chance = sum(chances(snapshot) for snapshot in snapshots[-3:]) / 3
print("final:", F.nll_loss(chance.log(), held_out[1]).item())
