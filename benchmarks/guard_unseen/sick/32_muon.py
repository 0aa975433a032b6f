# An own Muon for matrices with AdamW for the rest. Fault: in steps 500 to 507 the rate of Muon is 200 times too large.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--twin", action="store_true")
args = ap.parse_args()


class Muon(torch.optim.Optimizer):
    def __init__(self, params, lr=0.02, momentum=0.9):
        super().__init__(params, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                buf = self.state[p].setdefault("buf", torch.zeros_like(p))
                buf.mul_(group["momentum"]).add_(p.grad)
                u = p.grad + group["momentum"] * buf
                u = u / (u.norm() + 1e-7)
                for _ in range(5):
                    a = u @ u.T
                    u = 3.4445 * u + (-4.7750 * a + 2.0315 * a @ a) @ u
                p.add_(u, alpha=-group["lr"])


g = torch.Generator().manual_seed(271)
w = torch.randn(12, 4, generator=g)


def draw(n):
    x = torch.randn(n, 12, generator=g)
    return x, (torch.sin(x @ w / 4) + 0.3 * torch.randn(n, 4, generator=g)).argmax(1)


x, y = draw(8000)
hx, hy = draw(2000)
torch.manual_seed(args.seed)
net = nn.Sequential(nn.Linear(12, 48), nn.SiLU(), nn.Linear(48, 48), nn.SiLU(), nn.Linear(48, 4))
muon = Muon([p for p in net.parameters() if p.ndim == 2], lr=0.02)
adam = torch.optim.AdamW([p for p in net.parameters() if p.ndim < 2], lr=2e-3)
for step in range(650):
    base = 0.02 * (1 - step / 650)
    muon.param_groups[0]["lr"] = base * (200 if 500 <= step < 508 and not args.twin else 1)
    i = torch.randint(0, 8000, (64,))
    loss = nn.functional.cross_entropy(net(x[i]), y[i])
    net.zero_grad()
    loss.backward()
    muon.step()
    adam.step()
    if step % 65 == 0:
        print(step, loss.item())
net.eval()
with torch.no_grad():
    print("final:", nn.functional.cross_entropy(net(hx), hy).item())
