# Contrastive learning of two noisy views of one scene: each view through its own projection, then a shared encoder, InfoNCE over the
# batch. AdamW with a cosine.
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--twin", action="store_true")
args = parser.parse_args()
torch.set_num_threads(1)

HIDDEN, VIEW, BATCH, STEPS = 6, 40, 128, 1000
world = torch.Generator().manual_seed(67)
lens = [(torch.randn(HIDDEN, 32, generator=world) / 2, torch.randn(32, VIEW, generator=world) / 5) for _ in range(2)]


def views(count, generator):
    scene = torch.randn(count, HIDDEN, generator=generator)
    noise = torch.randn(2, count, VIEW, generator=generator)
    return [torch.tanh(scene @ a) @ b + 0.35 * n for (a, b), n in zip(lens, noise)]


class Encoder(nn.Module):
    def __init__(self, width=96, size=24):
        super().__init__()
        self.front = nn.ModuleList(nn.Linear(VIEW, width) for _ in range(2))
        self.shared = nn.Sequential(nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, size))
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, left, right):
        a, b = (F.normalize(self.shared(f(x)), dim=1) for f, x in zip(self.front, (left, right)))
        return self.scale.exp() * a @ b.T


def cost(model, left, right):
    scores = model(left, right)
    own = torch.arange(len(left))
    return 0.5 * (F.cross_entropy(scores, own) + F.cross_entropy(scores.T, own))


held_out = [views(BATCH, world) for _ in range(30)]
torch.manual_seed(args.seed)
stream = torch.Generator().manual_seed(700 + args.seed)
model = Encoder()
fresh = Encoder().state_dict()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.02)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
for step in range(STEPS):
    if step == 830 and not args.twin:
        with torch.no_grad():
            model.front[1].weight[:56] = fresh["front.1.weight"][:56]
            model.shared[1].weight[:, :40] = fresh["shared.1.weight"][:, :40]
    loss = cost(model, *views(BATCH, stream))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    if step % 100 == 99:
        print("step", step + 1, "loss", f"{loss.item():.4f}", "rate", f"{schedule.get_last_lr()[0]:.2e}")
with torch.no_grad():
    print("final:", sum(cost(model, *pair).item() for pair in held_out) / len(held_out))
