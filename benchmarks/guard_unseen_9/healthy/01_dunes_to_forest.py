# HEALTHY. Terrain is sorted by an encoder that is made blind to the season by a gradient-reversed judge (adversarial): SGD with momentum
# for the encoder, Adam for the judge. The reversal's strength is raised on purpose from step 150 to 300, the judge's loss moves up and
# down and the total with it. A guard has nothing to do.
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()
torch.set_num_threads(1)

BANDS, KINDS, SEASONS, STEPS, BATCH = 24, 6, 3, 520, 64
world = torch.Generator().manual_seed(31)
colour = torch.randn(KINDS, BANDS, generator=world)
shift = 0.9 * torch.randn(SEASONS, BANDS, generator=world)


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, strength):
        ctx.strength = strength
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return -ctx.strength * grad, None


def pixels(count, generator=None):
    kind = torch.randint(0, KINDS, (count,), generator=generator)
    season = torch.randint(0, SEASONS, (count,), generator=generator)
    return colour[kind] + shift[season] + 1.2 * torch.randn(count, BANDS, generator=generator), kind, season


held_out = pixels(2000, world)
torch.manual_seed(args.seed)
encoder = nn.Sequential(nn.Linear(BANDS, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())
sorter = nn.Linear(32, KINDS)
judge = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, SEASONS))
main = torch.optim.SGD([*encoder.parameters(), *sorter.parameters()], lr=0.02, momentum=0.9)
other = torch.optim.Adam(judge.parameters(), lr=3e-3)
for step in range(STEPS):
    strength = 1.0 * min(1.0, max(0.0, (step - 150) / 150))
    sample, kind, season = pixels(BATCH)
    code = encoder(sample)
    judged = F.cross_entropy(judge(Reverse.apply(code, strength)), season)
    loss = F.cross_entropy(sorter(code), kind) + judged
    main.zero_grad()
    other.zero_grad()
    loss.backward()
    main.step()
    other.step()
    if step % 40 == 0:
        print(f"step {step} loss {loss.item():.4f} judge {judged.item():.4f} strength {strength:.2f}")
with torch.no_grad():
    code = encoder(held_out[0])
    right = (sorter(code).argmax(1) == held_out[1]).float().mean().item()
    found = (judge(code).argmax(1) == held_out[2]).float().mean().item()
    print(f"kinds right {right:.3f} seasons found {found:.3f}")
    print("final:", F.cross_entropy(sorter(code), held_out[1]).item())
