# Adversarial training: clean images for 250 steps, then each image is moved against the network by up to 0.25 per pixel (two signed
# steps). The loss is twice as large at once. Lion, written out.
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()
fixed = torch.Generator().manual_seed(344)
stamp = torch.randn(6, 64, generator=fixed) * 0.5


class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr, beta1=0.9, beta2=0.99, decay=0.1):
        super().__init__(params, {"lr": lr, "beta1": beta1, "beta2": beta2, "decay": decay})

    @torch.no_grad()
    def step(self, closure=None):
        for g in self.param_groups:
            for p in g["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                p.mul_(1 - g["lr"] * g["decay"]).sub_(m.lerp(p.grad, 1 - g["beta1"]).sign(), alpha=g["lr"])
                m.lerp_(p.grad, 1 - g["beta2"])


def images(n, g=None):
    y = torch.randint(0, 6, (n,), generator=g)
    return (stamp[y] + 0.8 * torch.randn(n, 64, generator=g)), y


def attacked(net, x, y, eps):
    moved = x
    for _ in range(2):
        moved = moved.detach().requires_grad_(True)
        (grad,) = torch.autograd.grad(F.cross_entropy(net(moved), y), moved)
        moved = x + (moved + eps / 2 * grad.sign() - x).clamp(-eps, eps)
    return moved.detach()


test_x, test_y = images(2000, fixed)
torch.manual_seed(args.seed)
net = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 6))
opt = Lion(net.parameters(), lr=3e-4)
for step in range(650):
    x, y = images(48)
    if step >= 250:
        x = attacked(net, x, y, 0.25)
    loss = F.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 0:
        print(step, f"{loss.item():.4f}")
print("final:", F.cross_entropy(net(attacked(net, test_x, test_y, 0.25)), test_y).item())
