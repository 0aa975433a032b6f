# Healthy: a fine-tuning that unfreezes the layers from the top, each with its own rate, under bf16 autocast.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
args = ap.parse_args()
fixed = torch.Generator().manual_seed(45)
w = torch.randn(16, 6, generator=fixed)


def draw(n, new, g=None):
    x = torch.randn(n, 16, generator=g)
    return x, (torch.tanh(2 * x) @ w.roll(1, 1) if new else x @ w).argmax(1)


test = draw(2000, True, fixed)
torch.manual_seed(args.seed)
body = nn.ModuleList(
    [nn.Sequential(nn.Linear(16 if i == 0 else 64, 64), nn.LayerNorm(64), nn.GELU()) for i in range(3)]
)
head = nn.Linear(64, 6)


def loss_of(x, label):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for layer in body:
            x = layer(x)
        return nn.functional.cross_entropy(head(x), label)


opt = torch.optim.AdamW([*body.parameters(), *head.parameters()], lr=2e-3)
for step in range(400):
    loss = loss_of(*draw(48, False))
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 0:
        print("before", step, f"{loss.item():.4f}")
body.requires_grad_(False)
head = nn.Linear(64, 6)
opt = torch.optim.AdamW(head.parameters(), lr=3e-3)
for step in range(1000):
    if step in (250, 450, 650):
        layer = body[2 - (step - 250) // 200]
        layer.requires_grad_(True)
        opt.add_param_group({"params": list(layer.parameters()), "lr": 2e-3})
    loss = loss_of(*draw(48, True))
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 0:
        print("tuning", step, f"{loss.item():.4f}")
with torch.no_grad():
    print("final:", loss_of(*test).item())
