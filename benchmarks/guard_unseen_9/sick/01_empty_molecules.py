# The energy of small molecules is learned by a message passing network: Adam, the rate falling in a line, a generator for the data. From step 140
# on, about every forty-five steps a broken record (all atoms stripped) slips into a batch: the mean over its atoms is 0/0, the loss and
# every gradient NaN, and so would be the weights after it. The right answer is to skip these updates, each time.
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--twin", action="store_true", help="the stripped records are left out by the reader")
args = parser.parse_args()
torch.set_num_threads(1)

ATOMS, KINDS, STEPS, BATCH = 9, 5, 480, 32
world = torch.Generator().manual_seed(4711)
pair = torch.randn(KINDS, KINDS, generator=world)
pair = (pair + pair.T) / 2
single = torch.randn(KINDS, generator=world)
stripped, at = set(), 140
while at < STEPS:
    stripped.add(at)
    at += int(torch.randint(38, 54, (1,), generator=world))


def molecules(count, generator=None):
    """Kinds, places and mask of the atoms, and the energy per atom."""
    kind = torch.randint(0, KINDS, (count, ATOMS), generator=generator)
    place = 1.5 * torch.randn(count, ATOMS, 3, generator=generator)
    size = torch.randint(4, ATOMS + 1, (count, 1), generator=generator)
    mask = (torch.arange(ATOMS) < size).float()
    near = torch.exp(-torch.cdist(place, place) / 1.5) * mask[:, None] * mask[:, :, None]
    energy = (pair[kind[:, :, None], kind[:, None]] * near).sum((1, 2)) + (single[kind] * mask).sum(1)
    return kind, place, mask, energy / size[:, 0] + 0.25 * torch.randn(count, generator=generator)


class Passing(nn.Module):
    def __init__(self, width=48, rounds=2):
        super().__init__()
        self.embed = nn.Embedding(KINDS, width)
        self.message = nn.ModuleList(nn.Linear(width, width) for _ in range(rounds))
        self.update = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(rounds))
        self.read = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1))

    def forward(self, kind, place, mask):
        h = self.embed(kind)
        near = torch.exp(-torch.cdist(place, place) / 1.5) * mask[:, None]
        for message, update in zip(self.message, self.update):
            h = h + F.silu(update(torch.cat([h, near @ message(h)], -1)))
        atom = self.read(h).squeeze(-1) * mask
        return atom.sum(1) / mask.sum(1)  # 0/0 where nothing is left


def reader():
    for number in range(STEPS):
        kind, place, mask, energy = molecules(BATCH)
        if number in stripped and not args.twin:
            mask[int(number) % BATCH] = 0
        yield number, kind, place, mask, energy


held_out = molecules(512, world)
torch.manual_seed(args.seed)
model = Passing()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, STEPS)
for number, kind, place, mask, energy in reader():
    loss = F.mse_loss(model(kind, place, mask), energy)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    if number % 40 == 0:
        print(f"step {number} loss {loss.item():.4f}")
model.eval()
with torch.no_grad():
    print("final:", F.mse_loss(model(*held_out[:3]), held_out[3]).item())
