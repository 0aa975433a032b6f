# Speaker vectors with an additive angular margin that grows from 0 to 0.6 between steps 150 and 450: the training loss rises by
# design, the vectors get better. SGD with momentum.
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
args = ap.parse_args()
fixed = torch.Generator().manual_seed(337)
voice = torch.randn(30, 20, generator=fixed) * 0.8


def speech(n, g=None):
    k = torch.randint(0, 30, (n,), generator=g)
    return voice[k] + 0.8 * torch.randn(n, 20, generator=g), k


class Speakers(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 24))
        self.proto = nn.Parameter(torch.randn(30, 24))

    def forward(self, x, k, margin):
        cos = F.normalize(self.net(x), dim=1) @ F.normalize(self.proto, dim=1).T
        angle = cos.clamp(-1 + 1e-6, 1 - 1e-6).acos() + margin * F.one_hot(k, 30)
        return F.cross_entropy(12 * angle.cos(), k)


test = speech(3000, fixed)
torch.manual_seed(args.seed)
model = Speakers()
opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
for step in range(800):
    margin = 0.6 * min(max((step - 150) / 300, 0), 1)
    loss = model(*speech(48), margin)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 0:
        print(f"{step} margin {margin:.2f} loss {loss.item():.4f}")
with torch.no_grad():
    print("final:", model(*test, 0.0).item())
