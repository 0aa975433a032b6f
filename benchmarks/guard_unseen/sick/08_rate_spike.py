# MLP classifier, AdamW, own schedule. Fault: in steps 600 to 605 the rate is 0.3 (a typing error in the schedule).
import argparse
import math

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--twin", action="store_true")
args = ap.parse_args()
g = torch.Generator().manual_seed(31)
a, b = torch.randn(12, 32, generator=g) / 3, torch.randn(32, 5, generator=g)


def draw(n):
    x = torch.randn(n, 12, generator=g)
    return x, torch.distributions.Categorical(logits=torch.relu(x @ a) @ b).probs.argmax(1)


tx, ty = draw(10000)
hx, hy = draw(3000)
flip = torch.rand(10000, generator=g) < 0.15
ty[flip] = torch.randint(0, 5, (int(flip.sum()),), generator=g)
flip = torch.rand(3000, generator=g) < 0.15
hy[flip] = torch.randint(0, 5, (int(flip.sum()),), generator=g)
torch.manual_seed(args.seed)
net = nn.Sequential(nn.Linear(12, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 5))
opt = torch.optim.AdamW(net.parameters(), lr=2e-3)
TOTAL = 900
for step in range(TOTAL):
    lr = 2e-3 * min(1.0, (step + 1) / 40) * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * step / TOTAL)))
    if 600 <= step < 606 and not args.twin:
        lr = 0.3
    for group in opt.param_groups:
        group["lr"] = lr
    i = torch.randint(0, 10000, (64,))
    loss = nn.functional.cross_entropy(net(tx[i]), ty[i])
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 100 == 0:
        print(f"step {step} lr {lr:.5f} loss {loss.item():.4f}")
net.eval()
with torch.no_grad():
    print("final:", nn.functional.cross_entropy(net(hx), hy).item())
