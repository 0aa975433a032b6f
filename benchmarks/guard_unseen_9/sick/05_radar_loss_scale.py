# Echoes of a radar are sorted into classes by a one-dimensional convolutional network, with a loss scale as for half precision that
# doubles every 60 steps. From step 180 on, one step in about every thirty, the loss is multiplied by a scale that has jumped by 64 while
# the gradients are divided by the old one: SGD with momentum gets gradients 64 times too large, with no sign in the loss before.
# The right answer is to skip (or clip) these updates, each time.
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--twin", action="store_true", help="the scale that is used is the one divided by")
args = parser.parse_args()
torch.set_num_threads(1)

LENGTH, CLASSES, STEPS, BATCH = 48, 6, 480, 48
world = torch.Generator().manual_seed(2020)
shapes = torch.randn(CLASSES, 1, 16, generator=world)
jumps, at = set(), 180
while at < STEPS:
    jumps.add(at)
    at += int(torch.randint(24, 36, (1,), generator=world))


def echoes(count, generator=None):
    label = torch.randint(0, CLASSES, (count,), generator=generator)
    signal = 0.6 * torch.randn(count, 1, LENGTH, generator=generator)
    start = torch.randint(0, LENGTH - 16, (count,), generator=generator)
    index = start[:, None, None] + torch.arange(16)
    signal = signal.scatter_add(2, index, shapes[label])
    # one label in eight is a guess
    guess = torch.randint(0, CLASSES, (count,), generator=generator)
    return signal, torch.where(torch.rand(count, generator=generator) < 0.125, guess, label)


class Scale:
    """The loss scale: doubles every so often, is divided out before the step."""

    def __init__(self):
        self.value = 256.0

    def after(self, step):
        if step % 60 == 59:
            self.value *= 2

    def jumped(self, step):
        return self.value * (64 if step in jumps and not args.twin else 1)


def build():
    return nn.Sequential(
        nn.Conv1d(1, 24, 9, padding=4),
        nn.ReLU(),
        nn.MaxPool1d(2),
        nn.Conv1d(24, 32, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool1d(2),
        nn.Conv1d(32, 32, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveMaxPool1d(1),
        nn.Flatten(),
        nn.Linear(32, CLASSES),
    )


held_out = echoes(1024, world)
torch.manual_seed(args.seed)
model, scale = build(), Scale()
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)
for step in range(STEPS):
    signal, label = echoes(BATCH)
    loss = F.cross_entropy(model(signal), label)
    optimizer.zero_grad()
    (loss * scale.jumped(step)).backward()
    with torch.no_grad():
        for p in model.parameters():
            p.grad.div_(scale.value)
    optimizer.step()
    scale.after(step)
    if step % 40 == 0:
        print(f"step {step} loss {loss.item():.4f} scale {scale.value:.0f}")
model.eval()
with torch.no_grad():
    print("final:", F.cross_entropy(model(held_out[0]), held_out[1]).item())
