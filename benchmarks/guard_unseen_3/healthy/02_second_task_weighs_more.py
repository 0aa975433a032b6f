# Two tasks with one trunk, AdamW. The second one weighs 0.01 at first, 1 from step 200 on and 30 from step 400 on.
import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()
fixed = torch.Generator().manual_seed(332)
a, b = torch.randn(16, 4, generator=fixed) / 3, torch.randn(16, 6, generator=fixed) / 3


def draw(n, g=None):
    x = torch.randn(n, 16, generator=g)
    return x, (x @ a).tanh().sum(1) + 0.3 * torch.randn(n, generator=g), (x @ b).argmax(1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(16, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU())
        self.value, self.kind = nn.Linear(48, 1), nn.Linear(48, 6)

    def losses(self, x, y, k):
        h = self.trunk(x)
        return nn.functional.mse_loss(self.value(h).squeeze(1), y), nn.functional.cross_entropy(self.kind(h), k)


test = draw(3000, fixed)
torch.manual_seed(args.seed)
net = Net()
opt = torch.optim.AdamW(net.parameters(), lr=2e-3)
for step in range(700):
    first, second = net.losses(*draw(48))
    loss = first + (0.01 if step < 200 else 1.0 if step < 400 else 30.0) * second
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 0:
        print(f"{step:4d} total {loss.item():.4f} value {first.item():.4f} kind {second.item():.4f}")
with torch.no_grad():
    first, second = net.losses(*test)
print("final:", (first + second).item())
