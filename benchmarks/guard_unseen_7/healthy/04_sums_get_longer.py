# Running sums modulo five with a GRU, a curriculum of lengths: 4, then 8, 16 and 24 from steps 250, 400 and 550 on. The loss jumps at
# each change and the gradient norms grow; they are clipped all along. AdamW.
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()

STEPS, BATCH, BASE = 700, 64, 5
STAGES = [(0, 4), (250, 8), (400, 16), (550, 24)]
world = torch.Generator().manual_seed(8404)
value = torch.randperm(8, generator=world) % BASE


def sums(count, length, generator=None):
    """Symbols with hidden values; the target is the running sum, reported wrong now and then."""
    symbol = torch.randint(8, (count, length), generator=generator)
    total = value[symbol].cumsum(1) % BASE
    wrong = torch.rand(count, length, generator=generator) < 0.05
    other = torch.randint(BASE, (count, length), generator=generator)
    return symbol, torch.where(wrong, other, total)


def length_at(step):
    """The length of the stage a step lies in."""
    return [length for begin, length in STAGES if step >= begin][-1]


class Counter(nn.Module):
    """A GRU over the symbols and a small net that reads the sum from its state."""

    def __init__(self, width=64):
        super().__init__()
        self.symbol = nn.Embedding(8, 16)
        self.gru = nn.GRU(16, width, batch_first=True)
        self.out = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, BASE))

    def forward(self, symbol):
        state, _ = self.gru(self.symbol(symbol))
        return self.out(state)


def loss_of(model, symbol, total):
    return F.cross_entropy(model(symbol).flatten(0, 1), total.flatten())


held_out = sums(1000, 24, world)
torch.manual_seed(args.seed)
model = Counter()
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, STEPS)
for step in range(STEPS):
    length = length_at(step)
    symbol, total = sums(BATCH, length)
    loss = loss_of(model, symbol, total)
    optimizer.zero_grad()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    schedule.step()
    if step % 25 == 0:
        print(f"step {step} length {length} loss {loss.item():.4f} norm {norm.item():.3f}")
model.eval()
with torch.no_grad():
    print("final:", loss_of(model, *held_out).item())
