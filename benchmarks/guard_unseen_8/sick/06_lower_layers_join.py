# A small transformer reads readings of a machine and tells its wear; AdamW with decay and no-decay groups. Its input layer, its lower
# block and the adapters are frozen at first. At step 380, by plan, they join as a new group of parameters, but its entry says 0.3
# where 0.003 was meant. The right answer is to roll back to before the group joined and to give it the rate of the others.
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--twin", action="store_true", help="the entry of the group says what was meant")
args = parser.parse_args()
torch.set_num_threads(1)

CHANNELS, LENGTH, STEPS, JOIN, BATCH = 6, 16, 640, 380, 48
world = torch.Generator().manual_seed(9606)
load = torch.randn(CHANNELS, generator=world)
heat = torch.randn(CHANNELS, generator=world)


def machines(count, generator=None):
    """Readings over time, and the wear."""
    readings = torch.randn(count, LENGTH, CHANNELS, generator=generator)
    strain = torch.tanh(readings @ load)
    wear = 3 * (strain * torch.sigmoid(readings @ heat)).mean(1) + strain.amax(1)
    return readings, wear + 0.35 * torch.randn(count, generator=generator)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.adapter = nn.Sequential(nn.Linear(width, 8), nn.GELU(), nn.Linear(8, width))
        nn.init.zeros_(self.adapter[2].weight)
        nn.init.zeros_(self.adapter[2].bias)

    def forward(self, x):
        y = self.first(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        y = self.mlp(self.second(x))
        return x + y + self.adapter(y)


class Reader(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.into = nn.Linear(CHANNELS, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(2))
        self.out = nn.Linear(width, 1)

    def forward(self, readings):
        x = self.into(readings)
        for block in self.blocks:
            x = block(x)
        return self.out(x.mean(1)).squeeze(1)


held_out = machines(2000, world)
torch.manual_seed(args.seed)
model = Reader()
late = ("adapter", "into", "blocks.0")
joining = [p for name, p in model.named_parameters() if any(part in name for part in late)]
others = [p for name, p in model.named_parameters() if not any(part in name for part in late)]
for p in joining:
    p.requires_grad_(False)
optimizer = torch.optim.AdamW(
    [
        {"params": [p for p in others if p.dim() > 1], "weight_decay": 0.02},
        {"params": [p for p in others if p.dim() == 1], "weight_decay": 0.0},
    ],
    lr=3e-3,
)
for step in range(STEPS):
    if step == JOIN:
        for p in joining:
            p.requires_grad_(True)
        entry = {"lr": 3e-3} if args.twin else {"lr": 0.3}
        optimizer.add_param_group({"params": joining, "weight_decay": 0.0, **entry})
    readings, wear = machines(BATCH)
    loss = F.mse_loss(model(readings), wear)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 0:
        print(f"step {step} loss {loss.item():.4f}")
model.eval()
with torch.no_grad():
    print("final:", F.mse_loss(model(held_out[0]), held_out[1]).item())
