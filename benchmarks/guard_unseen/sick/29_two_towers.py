# Two-tower retrieval, in-batch softmax, learned temperature, AdamW. Fault: a bit of the temperature flips at step 640.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--twin", action="store_true")
args = ap.parse_args()
g = torch.Generator().manual_seed(241)
A, B = torch.randn(6, 16, generator=g), torch.randn(6, 18, generator=g)


def pairs(n):
    z = torch.randn(n, 6, generator=g)
    return z @ A + 1.5 * torch.randn(n, 16, generator=g), z @ B + 1.5 * torch.randn(n, 18, generator=g)


q, d = pairs(8000)
hq, hd = pairs(512)


class Towers(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Sequential(nn.Linear(16, 48), nn.ReLU(), nn.Linear(48, 12))
        self.d = nn.Sequential(nn.Linear(18, 48), nn.ReLU(), nn.Linear(48, 12))
        self.log_scale = nn.Parameter(torch.tensor(1.5))

    def forward(self, q, d):
        a = nn.functional.normalize(self.q(q), dim=1)
        b = nn.functional.normalize(self.d(d), dim=1)
        logits = self.log_scale.exp() * a @ b.T
        y = torch.arange(len(q))
        return (nn.functional.cross_entropy(logits, y) + nn.functional.cross_entropy(logits.T, y)) / 2


torch.manual_seed(args.seed)
net = Towers()
opt = torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=0.0)
for step in range(800):
    if step == 640 and not args.twin:
        with torch.no_grad():
            net.log_scale.view(torch.int32).bitwise_xor_(1 << 25)
    i = torch.randint(0, 8000, (64,))
    loss = net(q[i], d[i])
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 80 == 0:
        print(f"{step:4d} {loss.item():.4f} scale {net.log_scale.exp().item():.2f}")
net.eval()
with torch.no_grad():
    print("final:", torch.stack([net(hq[j : j + 64], hd[j : j + 64]) for j in range(0, 512, 64)]).mean().item())
