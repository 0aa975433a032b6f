# Machine states from vibration windows: an MLP mixer over patches, SGD with momentum, gradients averaged over 16 workers (here in
# one process). For 40 steps after a worker rejoined, from step 420, the collective sums the gradients and no longer averages them.
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--twin", action="store_true")
args = parser.parse_args()

STEPS, WORKERS, BATCH = 600, 16, 64
PATCHES, SIZE, STATES = 16, 8, 6
REJOINED, REPAIRED = 420, 460
world = torch.Generator().manual_seed(7303)
pitch = torch.tensor([3.0, 4.5, 6.0, 7.5, 9.0, 11.0])


def windows(count, generator=None):
    state = torch.randint(STATES, (count,), generator=generator)
    time = torch.linspace(0, 6.2832, PATCHES * SIZE)
    phase = 6.2832 * torch.rand(count, 1, generator=generator)
    wobble = 1 + 0.03 * torch.randn(count, 1, generator=generator)
    wave = torch.sin(pitch[state].unsqueeze(1) * wobble * time + phase)
    other = 0.7 * torch.sin(13 * time + 2 * phase)
    noise = 2.3 * torch.randn(count, PATCHES * SIZE, generator=generator)
    return (wave + other + noise).view(count, PATCHES, SIZE), state


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.across = nn.Sequential(nn.Linear(PATCHES, 32), nn.GELU(), nn.Linear(32, PATCHES))
        self.within = nn.Sequential(nn.Linear(width, 64), nn.GELU(), nn.Linear(64, width))

    def forward(self, x):
        x = x + self.across(self.first(x).transpose(1, 2)).transpose(1, 2)
        return x + self.within(self.second(x))


class Mixer(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.begin = nn.Linear(SIZE, width)
        self.blocks = nn.Sequential(Block(width), Block(width))
        self.out = nn.Linear(PATCHES * width, STATES)

    def forward(self, x):
        return self.out(self.blocks(self.begin(x)).flatten(1))


def loss_of(model, x, state):
    return F.cross_entropy(model(x), state)


def reduce_gradients(model, total):
    """The batch holds the shards of all workers, so its mean gradient is the average; the sum is WORKERS times that."""
    if total:
        for p in model.parameters():
            p.grad.mul_(WORKERS)


held_out = windows(3000, world)
torch.manual_seed(args.seed)
model = Mixer()
optimizer = torch.optim.SGD(model.parameters(), lr=0.04, momentum=0.9)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS, eta_min=4e-4)
for step in range(STEPS):
    x, state = windows(BATCH)
    loss = loss_of(model, x, state)
    optimizer.zero_grad()
    loss.backward()
    reduce_gradients(model, REJOINED <= step < REPAIRED and not args.twin)
    optimizer.step()
    schedule.step()
    if step % 40 == 0:
        print(f"step {step} loss {loss.item():.4f}")
model.eval()
with torch.no_grad():
    print("final:", loss_of(model, *held_out).item())
