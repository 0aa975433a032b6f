# LayerNorm net under bf16 autocast, NAdam. Fault: from step 630 to 694 the labels come from a list with one name more: all are
# shifted by one.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--twin", action="store_true")
args = ap.parse_args()
fixed = torch.Generator().manual_seed(27)
centre = torch.randn(8, 20, generator=fixed)


def draw(n, g=None):
    label = torch.randint(0, 8, (n,), generator=g)
    return centre[label] + torch.randn(n, 20, generator=g) * 1.3, label


test = draw(3000, fixed)
torch.manual_seed(args.seed)
model = nn.Sequential(
    nn.Linear(20, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 8)
)
opt = torch.optim.NAdam(model.parameters(), lr=1e-3)
for step in range(700):
    x, label = draw(64)
    if 630 <= step < 695 and not args.twin:
        label = (label + 1) % 8
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = nn.functional.cross_entropy(model(x), label)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 0:
        print(f"step {step} loss {loss.item():.4f}")
model.eval()
with torch.no_grad():
    print("final:", nn.functional.cross_entropy(model(test[0]), test[1]).item())
