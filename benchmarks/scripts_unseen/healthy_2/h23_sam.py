# expect: healthy
# fault: none
# note: sharpness-aware minimisation: two backward passes and a perturbation of the weights that is undone before the step.
import torch
from torch import nn


class SAM(torch.optim.Optimizer):
    def __init__(self, params, base, rho=0.05, **kw):
        super().__init__(params, dict(rho=rho, **kw))
        self.base = base(self.param_groups, **kw)
        self.param_groups = self.base.param_groups

    @torch.no_grad()
    def step(self, closure):
        closure = torch.enable_grad()(closure)
        ps = [p for g in self.param_groups for p in g["params"] if p.grad is not None]
        n = torch.stack([p.grad.norm() for p in ps]).norm() + 1e-12
        es = [p.grad * (self.param_groups[0]["rho"] / n) for p in ps]
        for p, e in zip(ps, es):
            p.add_(e)
        self.zero_grad()
        closure()
        for p, e in zip(ps, es):
            p.sub_(e)
        self.base.step()
        self.zero_grad()


torch.manual_seed(23)
net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 5))
opt = SAM(net.parameters(), torch.optim.SGD, lr=0.1, momentum=0.9)
W = torch.randn(16, 5)
for s in range(150):
    x = torch.randn(64, 16)
    y = (x @ W).argmax(1)

    def closure():
        l = nn.functional.cross_entropy(net(x), y)
        l.backward()
        return l

    loss = closure()
    opt.step(closure)
    if s % 15 == 0:
        print(s, round(loss.item(), 4))
