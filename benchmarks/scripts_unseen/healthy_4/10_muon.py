# expect: healthy
# cause: none, a Muon-like optimizer whose updates all have the same size whatever the gradient, next to AdamW for the rest
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(100)


def orthogonalise(m, rounds=5):
    a, b, c = 3.4445, -4.7750, 2.0315
    x = m / (m.norm() + 1e-7)
    flip = x.shape[0] > x.shape[1]
    if flip:
        x = x.t()
    for _ in range(rounds):
        s = x @ x.t()
        x = a * x + (b * s + c * s @ s) @ x
    return x.t() if flip else x


class Muon(torch.optim.Optimizer):
    def __init__(self, params, lr=0.02, momentum=0.9, weight_decay=0.0):
        super().__init__(params, dict(lr=lr, momentum=momentum, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                buf = self.state[p].setdefault("buf", torch.zeros_like(p))
                buf.mul_(group["momentum"]).add_(p.grad)
                direction = orthogonalise(p.grad + group["momentum"] * buf)
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(direction, alpha=-group["lr"] * max(1, p.shape[0] / p.shape[1]) ** 0.5)


class Mixer(nn.Module):
    def __init__(self, d=64):
        super().__init__()
        self.inp = nn.Linear(12, d)
        self.token = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))
        self.channel = nn.ModuleList(
            nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d)) for _ in range(3)
        )
        self.norm = nn.ModuleList(nn.LayerNorm(d) for _ in range(6))
        self.out = nn.Linear(d, 1)

    def forward(self, x):
        h = self.inp(x)
        for i in range(3):
            h = h + self.token[i](self.norm[2 * i](h).transpose(1, 2)).transpose(1, 2)
            h = h + self.channel[i](self.norm[2 * i + 1](h))
        return self.out(h.mean(1)).squeeze(-1)


def pairs(n):
    x = torch.randn(n, 16, 12)
    return x, (x[:, :, :2] * x[:, :, 2:4]).sum((1, 2)) / 8 + x[:, ::4, 5].sum(1) / 4


model = Mixer()
matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and n not in ("inp.weight", "out.weight")]
others = [p for p in model.parameters() if all(p is not m for m in matrices)]
optimizers = [Muon(matrices, lr=0.02, weight_decay=0.01), torch.optim.AdamW(others, lr=3e-3)]
schedules = [torch.optim.lr_scheduler.LambdaLR(o, lambda s: min(1.0, (250 - s) / 120 + 0.02)) for o in optimizers]
xv, yv = pairs(1000)
for step in range(250):
    x, y = pairs(96)
    loss = F.mse_loss(model(x), y)
    model.zero_grad()
    loss.backward()
    for o, s in zip(optimizers, schedules):
        o.step()
        s.step()
    if step % 25 == 24:
        with torch.no_grad():
            print(f"step {step + 1} loss {loss.item():.4f} test {F.mse_loss(model(xv), yv).item():.4f}")
