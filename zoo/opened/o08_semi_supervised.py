# expect: healthy
# symptom: signs that look turned and are right
# axis: none
# mended: none
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F


def two_moons(n, noise=0.12):
    t = torch.rand(n) * 3.14159
    y = torch.randint(0, 2, (n,))
    x = torch.stack([torch.cos(t) + y * (1 - 2 * torch.cos(t)), torch.sin(t) + y * (0.5 - 2 * torch.sin(t))], 1)
    return x + noise * torch.randn(n, 2), y


def entropy(logits):
    logp = F.log_softmax(logits, dim=-1)
    return -(logp.exp() * logp).sum(-1)


class SemiSupervised:
    def __init__(self, ent_weight, balance_weight):
        self.net = nn.Sequential(nn.Linear(2, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 2))
        self.opt = torch.optim.Adam(self.net.parameters(), lr=4e-3)
        self.ent_weight, self.balance_weight = ent_weight, balance_weight

    def step(self, xl, yl, xu, ramp):
        logits_u = self.net(xu)
        supervised = F.cross_entropy(self.net(xl), yl)
        confident = entropy(logits_u).mean()
        marginal = logits_u.softmax(-1).mean(0)
        diverse = -(marginal * marginal.log()).sum()
        loss = supervised + ramp * (self.ent_weight * confident - self.balance_weight * diverse)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item(), confident.item(), diverse.item()

    @torch.no_grad()
    def accuracy(self, x, y):
        return (self.net(x).argmax(1) == y).float().mean().item()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=240)
    p.add_argument("--labelled", type=int, default=16)
    p.add_argument("--ent-weight", type=float, default=0.3)
    p.add_argument("--balance-weight", type=float, default=0.3)
    args = p.parse_args()
    torch.manual_seed(2)
    torch.set_num_threads(1)
    xl, yl = two_moons(args.labelled)
    xu, _ = two_moons(1000)
    xt, yt = two_moons(500)
    learner = SemiSupervised(args.ent_weight, args.balance_weight)
    for i in range(1, args.steps + 1):
        batch = xu[torch.randint(0, len(xu), (64,))]
        loss, conf, div = learner.step(xl, yl, batch, ramp=min(1.0, i / 120))
        if i % 60 == 0:
            print(f"{i} loss {loss:+.4f} entropy {conf:.4f} marginal {div:.4f} test acc {learner.accuracy(xt, yt):.3f}")


main()
