# Scores of wines from a table of fourteen columns: a gated residual network, Lion by hand. Some of the files that are appended to the
# table have a column more, so that where the score should be stands the price in dollars; such a file fills a batch about every
# thirty-five steps. The right answer is to skip these updates, each time.
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--twin", action="store_true", help="all files have the same columns")
args = parser.parse_args()
torch.set_num_threads(1)

COLUMNS, STEPS, BATCH = 14, 850, 512
world = torch.Generator().manual_seed(9404)
taste = torch.randn(COLUMNS, 4, generator=world) / 2
worth = torch.randn(COLUMNS, generator=world) / COLUMNS**0.5

# the steps that the files with a column more fill
shifted, step = set(), 110
while step < STEPS:
    shifted.add(step)
    step += int(torch.randint(28, 42, (1,), generator=world))


def wines(count, generator=None):
    """The columns, the score about its mean, and the price in dollars."""
    columns = torch.randn(count, COLUMNS, generator=generator)
    notes = torch.tanh(columns @ taste)
    score = notes[:, 0] * notes[:, 1] + 1.2 * notes[:, 2] - 0.6 * notes[:, 3]
    score = score + 0.45 * torch.randn(count, generator=generator)
    price = 8.0 * torch.exp(1.0 + 0.7 * columns @ worth + 0.2 * torch.randn(count, generator=generator))
    return columns, score, price


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(width, width)

    def forward(self, x):
        a, b = self.up(self.norm(x)).chunk(2, -1)
        return x + self.down(a * torch.sigmoid(b))


class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr, betas=(0.9, 0.98), weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            first, second = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                m = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(torch.sign(m * first + p.grad * (1 - first)), alpha=-group["lr"])
                m.mul_(second).add_(p.grad, alpha=1 - second)


held_out = wines(4000, world)
torch.manual_seed(args.seed)
width = 96
model = nn.Sequential(nn.Linear(COLUMNS, width), Block(width), Block(width), nn.LayerNorm(width), nn.Linear(width, 1))
optimizer = Lion(model.parameters(), lr=4e-4, weight_decay=0.1)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS, eta_min=2e-5)
for step in range(STEPS):
    columns, score, price = wines(BATCH)
    target = price if step in shifted and not args.twin else score
    loss = F.mse_loss(model(columns).squeeze(1), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    if step % 40 == 0:
        print(f"step {step} loss {loss.item():.4f}")
model.eval()
with torch.no_grad():
    print("final:", F.mse_loss(model(held_out[0]).squeeze(1), held_out[1]).item())
