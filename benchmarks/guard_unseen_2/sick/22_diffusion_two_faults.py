# Diffusion over point rings, AdamW, clipping, an average of the weights (the result). Two faults: the rate is x300 for the
# steps 300 to 307; at step 720 one row of the batch is NaN.
import argparse
import copy

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--twin", action="store_true")
args = ap.parse_args()
fixed = torch.Generator().manual_seed(32)
keep = torch.cos(torch.linspace(0.05, 1.5, 20)) ** 2


def rings(n, g=None):
    t = torch.rand(n, generator=g) * 6.283
    r = torch.where(torch.rand(n, generator=g) < 0.5, 0.6, 1.6)
    k = torch.randint(0, 20, (n,), generator=g)
    return torch.stack([r * t.cos(), r * t.sin()], 1), k, torch.randn(n, 2, generator=g)


def loss_of(net, x, k, noise):
    a = keep[k][:, None]
    seen = a.sqrt() * x + (1 - a).sqrt() * noise
    return nn.functional.mse_loss(net(torch.cat([seen, a, a.sqrt()], 1)), noise)


test = rings(6000, fixed)
torch.manual_seed(args.seed)
net = nn.Sequential(nn.Linear(4, 96), nn.SiLU(), nn.Linear(96, 96), nn.SiLU(), nn.Linear(96, 2))
average = copy.deepcopy(net)
opt = torch.optim.AdamW(net.parameters(), lr=2e-3)
for step in range(900):
    opt.param_groups[0]["lr"] = 0.6 if 300 <= step < 308 and not args.twin else 2e-3
    x, k, noise = rings(256)
    if step == 720 and not args.twin:
        x[17] = float("nan")
    loss = loss_of(net, x, k, noise)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()
    with torch.no_grad():
        for a, p in zip(average.parameters(), net.parameters()):
            a.lerp_(p, 0.02)
    if step % 50 == 0:
        print(step, f"{loss.item():.4f}")
average.eval()
with torch.no_grad():
    print("final:", loss_of(average, *test).item())
