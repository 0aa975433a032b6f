# HEALTHY. A gated recurrent network keeps a running balance of marked entries in a ledger: RMSprop, gradients clipped at 1. The ledgers
# grow from 6 to 12, 24 and 40 lines at steps 120, 240 and 360; the loss leaps up each time (longer sums, a larger target) and is learned
# down again. A guard has nothing to do.
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()
torch.set_num_threads(1)

STEPS, BATCH = 480, 32
LENGTHS = {0: 6, 120: 12, 240: 24, 360: 40}
world = torch.Generator().manual_seed(65)


def ledgers(count, length, generator=None):
    amount = torch.randn(count, length, generator=generator)
    marked = (torch.rand(count, length, generator=generator) < 0.4).float()
    return torch.stack([amount, marked], -1), (amount * marked).cumsum(1)


class Keeper(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.cell = nn.GRU(2, width, batch_first=True)
        self.head = nn.Linear(width, 1)

    def forward(self, entries):
        return self.head(self.cell(entries)[0]).squeeze(-1)


held_out = ledgers(400, 40, world)
torch.manual_seed(args.seed)
keeper = Keeper()
optimizer = torch.optim.RMSprop(keeper.parameters(), lr=2e-3)


@torch.no_grad()
def held_out_loss(upto=40):
    return F.mse_loss(keeper(held_out[0][:, :upto]), held_out[1][:, :upto]).item()


length, step, total = 0, 0, 0.0
while step < STEPS:
    length = LENGTHS.get(step, length)
    entries, balance = ledgers(BATCH, length)
    loss = F.mse_loss(keeper(entries), balance)
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(keeper.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    total += loss.item()
    step += 1
    if step % 40 == 0:
        print(f"step {step} lines {length} loss {total / 40:.4f} norm {norm.item():.2f}")
        total = 0.0
print(f"first six lines {held_out_loss(6):.4f}")
print("final:", held_out_loss())
