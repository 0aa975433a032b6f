# expect: healthy
# fault: updates all of one size, whatever the gradient
# note: Muon written by hand (Newton-Schulz orthogonalised momentum) for the matrices, Adam for the rest.
import torch
from torch import nn

torch.set_num_threads(1)


def orthogonalise(g, steps=5):
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g / (g.norm() + 1e-7)
    t = x.shape[0] > x.shape[1]
    if t:
        x = x.T
    for _ in range(steps):
        A = x @ x.T
        x = a * x + (b * A + c * A @ A) @ x
    return x.T if t else x


class Muon(torch.optim.Optimizer):
    def __init__(self, params, lr=0.02, momentum=0.95):
        super().__init__(params, dict(lr=lr, momentum=momentum))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                buf = self.state[p].setdefault("buf", torch.zeros_like(p))
                buf.mul_(group["momentum"]).add_(p.grad)
                u = orthogonalise(p.grad + group["momentum"] * buf)
                p.add_(u, alpha=-group["lr"] * max(1, p.shape[0] / p.shape[1]) ** 0.5)


torch.manual_seed(15)
teacher = torch.randn(24, 8)
net = nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))
muon = Muon([p for p in net.parameters() if p.ndim == 2], lr=0.02)
adam = torch.optim.Adam([p for p in net.parameters() if p.ndim == 1], lr=3e-3)
for s in range(180):
    lr = 0.02 * (1 - s / 180)
    muon.param_groups[0]["lr"] = lr
    x = torch.randn(64, 24)
    y = (x.abs() @ teacher).argmax(1)
    loss = nn.functional.cross_entropy(net(x), y)
    net.zero_grad()
    loss.backward()
    muon.step()
    adam.step()
    if s % 20 == 0:
        print(s, loss.item())
