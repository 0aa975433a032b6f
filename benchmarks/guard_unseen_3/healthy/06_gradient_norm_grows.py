# A network whose layers and outputs are all normalized, SGD. The temperature is annealed: the scale of the cosines goes from 1 to
# 16, so that the loss falls all the time while the gradient norm grows to several times its first size.
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()
fixed = torch.Generator().manual_seed(336)
a, b = torch.randn(20, 12, generator=fixed) / 3, torch.randn(12, 9, generator=fixed)


def draw(n, g=None):
    x = torch.randn(n, 20, generator=g)
    return x, ((x @ a).tanh() @ b + 0.4 * torch.randn(n, 9, generator=g)).argmax(1)


class Normed(nn.Module):
    def __init__(self, sizes=(20, 64, 64, 64)):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(i, o, bias=False) for i, o in zip(sizes, sizes[1:])])
        self.proto = nn.Parameter(torch.randn(9, sizes[-1]) / 4)

    def forward(self, x, scale):
        for layer in self.layers:
            h = layer(x)
            x = F.layer_norm(h, h.shape[1:], eps=1e-12).relu()
        return scale * F.normalize(x, dim=1) @ F.normalize(self.proto, dim=1).T


test_x, test_y = draw(3000, fixed)
torch.manual_seed(args.seed)
net = Normed()
opt = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 1000)
for step in range(900):
    x, y = draw(48)
    loss = F.cross_entropy(net(x, 16 ** min(step / 600, 1.0)), y)
    opt.zero_grad()
    loss.backward()
    norm = nn.utils.get_total_norm([p.grad for p in net.parameters()])
    opt.step()
    sched.step()
    if step % 60 == 0:
        print(f"{step} loss {loss.item():.4f} norm {norm.item():.4f}")
with torch.no_grad():
    print("final:", F.cross_entropy(net(test_x, 16.0), test_y).item())
