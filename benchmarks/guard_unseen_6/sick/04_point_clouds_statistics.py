# Point clouds of eight solids, told apart by a shared network and a maximum over the points. SGD with momentum; the batch
# statistics are frozen in mid-run, as is usual before the rate falls.
import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--twin", action="store_true")
args = parser.parse_args()
torch.set_num_threads(1)

KINDS, POINTS, BATCH, STEPS = 8, 48, 32, 850
world = torch.Generator().manual_seed(64)
axes = 1.0 + 0.5 * torch.randn(KINDS, 3, generator=world)
powers = torch.linspace(0.6, 2.2, KINDS)


def clouds(count, generator):
    kind = torch.randint(KINDS, (count,), generator=generator)
    points = F.normalize(torch.randn(count, POINTS, 3, generator=generator), dim=2)
    points = points.sign() * points.abs() ** powers[kind][:, None, None] * axes[kind][:, None]
    turn = 2 * math.pi * torch.rand(count, generator=generator)
    c, s, zero, one = turn.cos(), turn.sin(), torch.zeros(count), torch.ones(count)
    matrix = torch.stack((c, -s, zero, s, c, zero, zero, zero, one), 1).view(count, 3, 3)
    points = points @ matrix + 0.4 * torch.randn(count, POINTS, 3, generator=generator)
    return 3 * points + 4, kind


class PointNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm0 = nn.BatchNorm1d(3)
        self.conv1, self.norm1 = nn.Conv1d(3, 48, 1), nn.BatchNorm1d(48)
        self.conv2, self.norm2 = nn.Conv1d(48, 96, 1), nn.BatchNorm1d(96)
        self.head = nn.Sequential(nn.Linear(96, 48), nn.ReLU(), nn.Linear(48, KINDS))

    def forward(self, points):
        h = self.norm0(points.transpose(1, 2))
        h = torch.relu(self.norm1(self.conv1(h)))
        h = torch.relu(self.norm2(self.conv2(h)))
        return self.head(h.amax(2))


held_out = clouds(1500, world)
torch.manual_seed(args.seed)
stream = torch.Generator().manual_seed(400 + args.seed)
model = PointNet()
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm1d)]
for step in range(STEPS):
    if step == 360:
        for norm in norms:
            norm.eval()
    if step == 690 and not args.twin:
        for norm in norms:
            norm.reset_running_stats()
    points, kind = clouds(BATCH, stream)
    loss = F.cross_entropy(model(points), kind)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 2.0)
    optimizer.step()
    schedule.step()
    if step % 75 == 0:
        print(f"step {step}: {loss.item():.4f}")
model.eval()
with torch.no_grad():
    print("final:", F.cross_entropy(model(held_out[0]), held_out[1]).item())
