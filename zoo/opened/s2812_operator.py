# expect: sick
# symptom: within the first tens of steps the loss runs away to a hundred times its start value and then creeps down only as lr decays
# axis: optimizer
# cause: the Shampoo optimizer raises each of the two Kronecker factors to the power -1/2 instead of -1/4 for matrices, so the update is over-preconditioned and scales with one over the gradient norm
# says: (expon|power|root|-?1/2|-?1/4|-?0\.5|-?0\.25|over-?precondition|squared inverse).*(shampoo|precondition|kronecker|factor|update|matri|order|gradient|side|dim|1/4|0\.25)|(shampoo|precondition|kronecker).*(expon|power|root|1/4|0\.25)
# onset_step: 1
# fix: use the exponent -1/(2 * number of factors), that is -1/4 for matrices
# mended: yes
"""Operator learning: heat-conduction profiles after a fixed time, trained with a small Shampoo."""

import os

import torch
from torch import nn
from torch.optim import Optimizer

torch.set_num_threads(1)
torch.manual_seed(314)

MENDED = os.environ.get("MENDED") == "1"


class Shampoo(Optimizer):
    def __init__(self, params, lr=0.02, momentum=0.9, beta2=0.95, eps=1e-6, refresh=5):
        super().__init__(params, dict(lr=lr, momentum=momentum, beta2=beta2, eps=eps, refresh=refresh))

    @staticmethod
    def _inverse_root(mat, power, eps):
        w, q = torch.linalg.eigh(mat.double())
        w = w.clamp_min(0) + eps * w.max().clamp_min(1e-12)
        return (q * w.pow(power)) @ q.T

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            b2, eps = group["beta2"], group["eps"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                g = p.grad if p.ndim == 2 else p.grad.reshape(-1, 1)
                st = self.state[p]
                if not st:
                    st["t"] = 0
                    st["stats"] = [torch.zeros(d, d) if d > 1 else None for d in g.shape]
                    st["roots"] = [None, None]
                    st["buf"] = torch.zeros_like(g)
                st["t"] += 1
                for i, stat in enumerate(st["stats"]):
                    if stat is not None:
                        outer = g @ g.T if i == 0 else g.T @ g
                        stat.mul_(b2).add_(outer, alpha=1 - b2)
                if st["t"] % group["refresh"] == 1:
                    order = sum(s is not None for s in st["stats"])
                    power = -1.0 / (2 * order) if MENDED else -1.0 / 2
                    corr = 1 - b2 ** st["t"]
                    for i, stat in enumerate(st["stats"]):
                        if stat is not None:
                            st["roots"][i] = self._inverse_root(stat / corr, power, eps).to(g.dtype)
                d = g
                if st["roots"][0] is not None:
                    d = st["roots"][0] @ d
                if st["roots"][1] is not None:
                    d = d @ st["roots"][1]
                st["buf"].mul_(group["momentum"]).add_(d, alpha=1 - group["momentum"])
                p.add_(st["buf"].view_as(p), alpha=-group["lr"])


def heat_pairs(n, seed, points=48, modes=10, time=0.004):
    gen = torch.Generator().manual_seed(seed)
    x = torch.linspace(0, 1, points)
    k = torch.arange(1, modes + 1).float()
    amp = torch.randn(n, modes, generator=gen) / k.sqrt()
    basis = torch.sin(torch.pi * k[:, None] * x[None])
    kappa = 0.5 + torch.rand(n, 1, generator=gen)
    later = amp * torch.exp(-kappa * (torch.pi * k) ** 2 * time)
    return torch.cat([amp @ basis, kappa], 1), later @ basis


class OperatorNet(nn.Module):
    def __init__(self, points=48, width=64):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(points + 1, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, points)
        )
        self.skip = nn.Linear(points, points, bias=False)

    def forward(self, a):
        return self.body(a) + self.skip(a[:, :-1])


def relative_l2(pred, ref):
    return ((pred - ref).norm(dim=1) / ref.norm(dim=1)).mean().item()


inputs, targets = heat_pairs(6000, seed=1)
test_in, test_out = heat_pairs(500, seed=2)
net = OperatorNet()
opt = Shampoo(net.parameters(), lr=0.01)
sampler = torch.Generator().manual_seed(5)

STEPS = 500
for it in range(STEPS):
    for grp in opt.param_groups:
        grp["lr"] = 0.01 * min(1.0, (it + 1) / 20) * (1 - 0.95 * it / STEPS)
    pick = torch.randint(0, len(inputs), (128,), generator=sampler)
    err = net(inputs[pick]) - targets[pick]
    loss = 0.5 * err.pow(2).sum(1).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if it % 20 == 0 or it == STEPS - 1:
        with torch.no_grad():
            rel = relative_l2(net(test_in), test_out)
        print(f"{it:5d}  loss {loss.item():.5g}  test rel.L2 {rel:.4f}", flush=True)
