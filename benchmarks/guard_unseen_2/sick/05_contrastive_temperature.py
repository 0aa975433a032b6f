# Contrastive pairs with a learned temperature (its logarithm is the parameter), Adam. Fault: at step 400 a reload writes
# 1 / 0.07 where log(1 / 0.07) belongs.
import argparse
import math

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--twin", action="store_true")
args = ap.parse_args()
fixed = torch.Generator().manual_seed(15)
mix = torch.randn(2, 6, 24, generator=fixed) / 2


def pairs(n, g=None):
    idea = torch.randn(n, 6, generator=g)
    views = torch.tanh(idea @ mix)
    return views + torch.randn(2, n, 24, generator=g) * 0.8


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.ModuleList([nn.Sequential(nn.Linear(24, 48), nn.ReLU(), nn.Linear(48, 12)) for _ in range(2)])
        self.logit_scale = nn.Parameter(torch.tensor(math.log(5.0)))

    def forward(self, views):
        a, b = (nn.functional.normalize(net(v), dim=-1) for net, v in zip(self.net, views))
        logits = self.logit_scale.exp() * a @ b.T
        want = torch.arange(len(logits))
        return (nn.functional.cross_entropy(logits, want) + nn.functional.cross_entropy(logits.T, want)) / 2


test = [pairs(64, fixed) for _ in range(20)]
torch.manual_seed(args.seed)
model = Encoder()
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
sched = torch.optim.lr_scheduler.PolynomialLR(opt, total_iters=600, power=1.0)
for step in range(560):
    if step == 400 and not args.twin:
        model.logit_scale.data.fill_(1 / 0.07)
    loss = model(pairs(64))
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    if step % 40 == 0:
        print(step, f"loss {loss.item():.4f} scale {model.logit_scale.exp().item():.2f}")
model.eval()
with torch.no_grad():
    print("final:", sum(model(v).item() for v in test) / len(test))
