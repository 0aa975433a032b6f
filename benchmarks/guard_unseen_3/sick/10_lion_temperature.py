# Attention over a set with a learned temperature per head, Lion. The temperatures are frozen at first; at step 150 they are
# set free with a rate of 3 in place of 0.003.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--twin", action="store_true")
args = ap.parse_args()
fixed = torch.Generator().manual_seed(310)
key = torch.randn(6, 4, generator=fixed)


class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                m = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_((b1 * m + (1 - b1) * p.grad).sign(), alpha=-group["lr"])
                m.mul_(b2).add_(p.grad, alpha=1 - b2)


def sets(n, g=None):
    """Ten items each; asked for is the mean value of the items, weighted by how they fit the query."""
    q, items = torch.randn(n, 4, generator=g), torch.randn(n, 10, 7, generator=g)
    fit = (items[:, :, :6] @ key * q[:, None]).sum(-1).div(2).softmax(-1)
    return q, items, (fit * items[:, :, 6]).sum(1) + 0.25 * torch.randn(n, generator=g)


class Reader(nn.Module):
    def __init__(self, heads=4, d=12):
        super().__init__()
        self.heads, self.d = heads, d
        self.q, self.k, self.v = nn.Linear(4, heads * d), nn.Linear(7, heads * d), nn.Linear(7, heads * d)
        self.log_temperature = nn.Parameter(torch.full((heads,), 0.7))
        self.out = nn.Sequential(nn.Linear(heads * d, 32), nn.GELU(), nn.Linear(32, 1))

    def forward(self, q, items):
        n = len(q)
        q = nn.functional.normalize(self.q(q).view(n, self.heads, self.d), dim=-1)
        k = nn.functional.normalize(self.k(items).view(n, 10, self.heads, self.d), dim=-1)
        w = (torch.einsum("nhd,nthd->nht", q, k) * self.log_temperature.exp()[:, None]).softmax(-1)
        y = torch.einsum("nht,nthd->nhd", w, self.v(items).view(n, 10, self.heads, self.d))
        return self.out(y.flatten(1)).squeeze(1)


test = sets(3000, fixed)
torch.manual_seed(args.seed)
model = Reader()
rest = [p for n, p in model.named_parameters() if n != "log_temperature"]
opt = Lion([{"params": rest}, {"params": [model.log_temperature], "lr": 0.0}], lr=4e-4, weight_decay=0.02)
for step in range(700):
    if step == 150:
        opt.param_groups[1]["lr"] = 3e-3 if args.twin else 3.0
    q, items, y = sets(64)
    loss = nn.functional.mse_loss(model(q, items), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 0:
        print(f"{step:4d} loss {loss.item():.4f} temperature {model.log_temperature.exp().mean().item():.3g}")
with torch.no_grad():
    print("final:", nn.functional.mse_loss(model(*test[:2]), test[2]).item())
