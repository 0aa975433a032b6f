# Insurance claims per region: a small network of expected cost. About one batch in thirty comes from a storm week, when another
# law holds and the sums are ten times as large; storms count in the held-out set. SGD with momentum on a Huber loss.
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()
torch.set_num_threads(1)

INPUT, BATCH, STEPS = 10, 128, 1500
world = torch.Generator().manual_seed(82)
calm = torch.randn(INPUT, generator=world) / INPUT**0.5
storm = torch.randn(INPUT, generator=world) / INPUT**0.5


def weeks(count, stormy, generator):
    x = torch.randn(count, INPUT, generator=generator)
    z = torch.randn(3, count, generator=generator)
    heavy = z[0] / (z.square().mean(0) + 0.1).sqrt()
    y = torch.tanh(x @ calm) + 0.3 * heavy
    if stormy:
        y = 10 + 10 * torch.relu(x @ storm) + 2 * heavy
    wind = torch.full((count, 1), float(stormy)) + 0.1 * torch.randn(count, 1, generator=generator)
    return torch.cat((x, wind), 1), y


def cost(model, x, y):
    return F.huber_loss(model(x)[:, 0], y, delta=2.0)


held_out = [weeks(2000, False, world), weeks(2000, True, world)]
torch.manual_seed(args.seed)
stream = torch.Generator().manual_seed(1200 + args.seed)
model = nn.Sequential(nn.Linear(INPUT + 1, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.8)
schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, STEPS)
for step in range(STEPS):
    stormy = bool(torch.rand((), generator=stream) < 1 / 30)
    loss = cost(model, *weeks(BATCH, stormy, stream))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    if step % 100 == 0:
        print("step", step, "stormy" if stormy else "calm", f"{loss.item():.4f}")
with torch.no_grad():
    print("final:", sum(cost(model, *part).item() for part in held_out) / 2)
