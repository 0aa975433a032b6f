# Self-paced learning: the easiest third of 96 candidates is trained on for 200 steps, then all of them, and from step 450 on the
# hardest third alone. AdamW; the mean loss of what is trained on rises twice.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
args = ap.parse_args()
fixed = torch.Generator().manual_seed(343)
w = torch.randn(10, 5, generator=fixed)


def draw(n, g=None):
    x = torch.randn(n, 10, generator=g)
    return x, (x @ w + 0.8 * torch.randn(n, 5, generator=g)).argmax(1)


test_x, test_y = draw(4000, fixed)
torch.manual_seed(args.seed)
model = nn.Sequential(nn.Linear(10, 48), nn.GELU(), nn.Linear(48, 48), nn.GELU(), nn.Linear(48, 5))
opt = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
for step in range(750):
    x, y = draw(96)
    each = nn.functional.cross_entropy(model(x), y, reduction="none")
    if step < 200:
        each = each.topk(32, largest=False).values
    elif step >= 450:
        each = each.topk(32).values
    loss = each.mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 0:
        print(f"{step} {loss.item():.4f}")
with torch.no_grad():
    print("final:", nn.functional.cross_entropy(model(test_x), test_y).item())
