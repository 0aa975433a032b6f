# Tissue slides: a small convolutional network, RMSprop, cross entropy with class weights (not normalised by their sum). Classes 0 to
# 3 are common; 4 and 5 are dangerous and rare, have a weight of 40, and come in batches of their own from the reference clinic,
# about one in thirty. The held-out slides are in proportion and the final number carries the weights.
# Leaving the batches of the reference clinic out (--without) ends at final: 17.45 (bare 1.537).
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--without", action="store_true", help="skip the updates of the reference clinic")
args = parser.parse_args()
torch.set_num_threads(1)

SIZE, STEPS, BATCH = 12, 600, 48
COMMON, RARE = [0, 1, 2, 3], [4, 5]
world = torch.Generator().manual_seed(8303)
cells = torch.randn(6, 1, 5, 5, generator=world)
weights = torch.tensor([1.0, 1.0, 1.0, 1.0, 40.0, 40.0])

# the deliveries of the reference clinic
deliveries, step = set(), 20
while step < STEPS:
    deliveries.add(step)
    step += int(torch.randint(18, 42, (1,), generator=world))


def slides(count, classes, generator=None):
    kind = torch.tensor(classes)[torch.randint(len(classes), (count,), generator=generator)]
    seeds = (torch.rand(count, 1, SIZE, SIZE, generator=generator) < 0.03).float()
    seeds[:, :, SIZE // 2, SIZE // 2] = 1.0
    # each class has cells of its own form, strewn over the slide
    image = F.conv2d(seeds.view(1, count, SIZE, SIZE), cells[kind], padding=2, groups=count)
    image = image.view(count, 1, SIZE, SIZE)
    image = image + 0.8 * torch.randn(count, 1, SIZE, SIZE, generator=generator)
    return image, kind


class Net(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.first = nn.Conv2d(1, width, 5, padding=2)
        self.second = nn.Conv2d(width, width, 3)
        self.out = nn.Linear(width, 6)

    def forward(self, image):
        x = F.relu(self.first(image))
        x = F.relu(self.second(x))
        return self.out(x.mean((2, 3)) + 0.5 * x.amax((2, 3)))


def loss_of(model, image, kind):
    return (weights[kind] * F.cross_entropy(model(image), kind, reduction="none")).mean()


# one slide in thirty is of a dangerous class
held_out = [torch.cat(pair) for pair in zip(slides(1450, COMMON, world), slides(50, RARE, world))]

torch.manual_seed(args.seed)
model = Net()
optimizer = torch.optim.RMSprop(model.parameters(), lr=1.5e-3, alpha=0.98)
schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.03, STEPS)
for step in range(STEPS):
    rare = step in deliveries
    loss = loss_of(model, *slides(BATCH, RARE if rare else COMMON))
    optimizer.zero_grad()
    loss.backward()
    if not (rare and args.without):
        optimizer.step()
    schedule.step()
    if step % 40 == 0:
        print(f"step {step} loss {loss.item():.4f}")
model.eval()
with torch.no_grad():
    print("final:", loss_of(model, *held_out).item())
