# expect: healthy
# cause: none, the Lion optimizer with sign updates, a small rate and a large weight decay
import torch
import torch.nn as nn

torch.manual_seed(120)


class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure=None):
        for g in self.param_groups:
            b1, b2 = g["betas"]
            for p in g["params"]:
                if p.grad is None:
                    continue
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                p.mul_(1 - g["lr"] * g["weight_decay"])
                p.add_((b1 * m + (1 - b1) * p.grad).sign(), alpha=-g["lr"])
                m.mul_(b2).add_(p.grad, alpha=1 - b2)


def tides(n, length=72, ahead=6):
    t0 = 1000 * torch.rand(n, 1)
    t = t0 + torch.arange(length + ahead).float()
    moon = torch.sin(6.2832 * t / 12.42) * (1 + 0.4 * torch.sin(6.2832 * t / 354))
    sun = 0.5 * torch.sin(6.2832 * t / 12.0 + 0.4)
    wind = torch.cumsum(0.04 * torch.randn(n, length + ahead), 1)
    level = moon + sun + wind + 0.05 * torch.randn(n, length + ahead)
    return level[:, :length], level[:, length:]


class TideNet(nn.Module):
    def __init__(self, d=64):
        super().__init__()
        self.patch = nn.Linear(12, d)
        self.pos = nn.Parameter(0.02 * torch.randn(6, d))
        self.enc = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(d, 4, 128, 0.0, batch_first=True, norm_first=True), 2, enable_nested_tensor=False
        )
        self.out = nn.Linear(6 * d, 6)

    def forward(self, x):
        return self.out(self.enc(self.patch(x.view(-1, 6, 12)) + self.pos).flatten(1))


model = TideNet()
opt = Lion(model.parameters(), lr=3e-4, weight_decay=1.0)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 400)
xv, yv = tides(600)
for step in range(400):
    x, y = tides(64)
    loss = (model(x) - y).abs().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    if step % 50 == 49:
        with torch.no_grad():
            val = (model(xv) - yv).abs().mean().item()
        print(
            f"step {step + 1} mae {loss.item():.4f} val {val:.4f} (keep the last level: {(xv[:, -1:] - yv).abs().mean():.3f})"
        )
