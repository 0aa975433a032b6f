# HEALTHY. Street scenes: a shared patch mixer tells depth and signs. Phase one (to step 160) trains the depth head on a frozen body's top;
# at 160 the whole body is unfrozen as a new group at its own rate, at 320 the signs' weight goes from 0.1 to 5 and the towns change from
# the north to the south, all on purpose. The loss leaps at 320 to many times itself. AdamW. A guard has nothing to do.
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()
torch.set_num_threads(1)

PATCHES, FEATURES, SIGNS, STEPS, BATCH = 12, 8, 5, 560, 32
world = torch.Generator().manual_seed(405)
deep = torch.randn(FEATURES, generator=world) / FEATURES**0.5
board = torch.randn(SIGNS, FEATURES, generator=world)
south = torch.randn(FEATURES, generator=world)


def scenes(count, town, generator=None):
    patch = torch.randn(count, PATCHES, FEATURES, generator=generator)
    sign = torch.randint(0, SIGNS, (count,), generator=generator)
    spot = torch.randint(0, PATCHES, (count,), generator=generator)
    patch[torch.arange(count), spot] += 1.5 * board[sign]
    depth = 2 * torch.tanh(patch @ deep) + 0.5 * patch.mean(1) @ deep.abs()[:, None]
    return patch + town * south, depth + 0.1 * torch.randn(depth.shape, generator=generator), sign


class Mixer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.across = nn.Sequential(nn.Linear(PATCHES, 24), nn.GELU(), nn.Linear(24, PATCHES))
        self.along = nn.Sequential(nn.Linear(width, 64), nn.GELU(), nn.Linear(64, width))

    def forward(self, x):
        x = x + self.across(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.along(self.norm2(x))


held_out = scenes(512, 1.0, world)
torch.manual_seed(args.seed)
body = nn.Sequential(nn.Linear(FEATURES, 32), Mixer(32), Mixer(32))
depth_head, sign_head = nn.Linear(32, 1), nn.Linear(32, SIGNS)
optimizer = torch.optim.AdamW([*depth_head.parameters(), *sign_head.parameters()], lr=3e-3)
for p in body.parameters():
    p.requires_grad_(False)


def losses(patch, depth, sign):
    code = body(patch)
    return F.mse_loss(depth_head(code).squeeze(-1), depth), F.cross_entropy(sign_head(code.amax(1)), sign)


weight = 0.1
for step in range(STEPS):
    if step == 160:
        for p in body.parameters():
            p.requires_grad_(True)
        optimizer.add_param_group({"params": list(body.parameters()), "lr": 2e-3})
    if step == 320:
        weight = 5.0
    near, read = losses(*scenes(BATCH, town=float(step >= 320)))
    loss = near + weight * read
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 0:
        print(f"step {step} loss {loss.item():.4f} depth {near.item():.4f} signs {read.item():.4f}")
with torch.no_grad():
    near, read = losses(*held_out)
    print("final:", (near + read).item())
