# Fine-tuning with gradual unfreezing: the body is trained on one task for 250 steps, then a new head alone, then one more layer
# every 100 steps, each with its own rate. One SGD per phase.
import argparse

import torch
from torch import nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
args = ap.parse_args()
fixed = torch.Generator().manual_seed(341)
p1, p2 = torch.randn(12, 4, generator=fixed) / 2, torch.randn(12, 7, generator=fixed)


def old(n):
    x = torch.randn(n, 12)
    return x, (x @ p1).tanh().sum(1, keepdim=True)


def new(n, g=None):
    x = torch.randn(n, 12, generator=g)
    return x, ((x @ p1).tanh().sum(1, keepdim=True) + x @ p2 / 2).argmax(1)


test_x, test_y = new(3000, fixed)
torch.manual_seed(args.seed)
layers = nn.ModuleList([nn.Linear(12, 40), nn.Linear(40, 40), nn.Linear(40, 40)])
head = nn.Linear(40, 1)


def forward(x):
    for layer in layers:
        x = layer(x).relu()
    return head(x)


opt = torch.optim.Adam([*layers.parameters(), *head.parameters()], lr=2e-3)
for step in range(250):
    x, y = old(48)
    loss = nn.functional.mse_loss(forward(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(f"pretrained, loss {loss.item():.4f}")
head = nn.Linear(40, 7)
layers.requires_grad_(False)
opt = torch.optim.SGD(head.parameters(), lr=0.05, momentum=0.9)
for step in range(500):
    if step in (100, 200, 300):
        layer = layers[3 - step // 100]
        layer.requires_grad_(True)
        opt.add_param_group({"params": list(layer.parameters()), "lr": 0.05 * 0.6 ** (step // 100)})
    x, y = new(48)
    loss = nn.functional.cross_entropy(forward(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 0:
        print(step, f"{loss.item():.4f}")
with torch.no_grad():
    print("final:", nn.functional.cross_entropy(forward(test_x), test_y).item())
