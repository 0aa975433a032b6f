# Sorting lists of digits with a GRU that reads and a GRU that writes. The lists grow from 3 to 6 in four stages, Adam.
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()
torch.set_num_threads(1)

DIGITS, BATCH, STAGE = 8, 64, 200
world = torch.Generator().manual_seed(81)


def lists(count, length, generator):
    digits = torch.randint(DIGITS, (count, length), generator=generator)
    return digits, digits.sort(1).values


class Sorter(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.look = nn.Embedding(DIGITS + 1, width)
        self.reader = nn.GRU(width, width, batch_first=True)
        self.writer = nn.GRU(width, width, batch_first=True)
        self.out = nn.Linear(width, DIGITS)

    def forward(self, digits, answer):
        _, memory = self.reader(self.look(digits))
        before = torch.cat((torch.full_like(answer[:, :1], DIGITS), answer[:, :-1]), 1)
        return self.out(self.writer(self.look(before), memory)[0])


def cost(model, digits, answer):
    return F.cross_entropy(model(digits, answer).flatten(0, 1), answer.flatten())


held_out = lists(1000, 6, world)
torch.manual_seed(args.seed)
stream = torch.Generator().manual_seed(1100 + args.seed)
model = Sorter()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
step = 0
for length in (3, 4, 5, 6):
    for _ in range(STAGE):
        loss = cost(model, *lists(BATCH, length, stream))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step} length {length} loss {loss.item():.4f}")
        step += 1
with torch.no_grad():
    print("final:", cost(model, *held_out).item())
