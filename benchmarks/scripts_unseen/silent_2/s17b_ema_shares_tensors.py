# expect: sick
# fault: EMA weights share storage with the model
# onset_step: 0
# says: (?i)(ema|average|share|alias|same (tensor|storage|memory|object)|copy|deepcopy|clone|identical|target)
# note: the shadow dict is taken from state_dict() without clone, so it aliases the live parameters; the average is always equal to the model, and each update even shrinks the live weights by 1e-4.
import torch
from torch import nn


class EMA:
    def __init__(self, model, decay=0.99):
        self.decay = decay
        self.shadow = dict(model.state_dict())

    @torch.no_grad()
    def update(self, model):
        for k, v in model.state_dict().items():
            if v.dtype.is_floating_point:
                self.shadow[k].mul_(self.decay).add_(v, alpha=1 - self.decay)

    def copy_to(self, model):
        model.load_state_dict(self.shadow)


class DiffusionMLP(nn.Module):
    def __init__(self, d=2, h=96, T=50):
        super().__init__()
        self.t = nn.Embedding(T, h)
        self.i, self.m, self.o = nn.Linear(d, h), nn.Linear(h, h), nn.Linear(h, d)

    def forward(self, x, t):
        h = nn.functional.silu(self.i(x) + self.t(t))
        return self.o(nn.functional.silu(self.m(h)))


torch.manual_seed(17)
abar = torch.cumprod(1 - torch.linspace(1e-3, 0.15, 50), 0)
net = DiffusionMLP()
ema = EMA(net)
ema_net = DiffusionMLP()
opt = torch.optim.AdamW(net.parameters(), lr=2e-3)


def ddpm_loss(model, n=128):
    th = torch.rand(n) * 6.283
    x0 = torch.stack([th.cos(), th.sin()], 1) + 0.05 * torch.randn(n, 2)
    t = torch.randint(0, 50, (n,))
    eps = torch.randn_like(x0)
    a = abar[t][:, None]
    return (model(a.sqrt() * x0 + (1 - a).sqrt() * eps, t) - eps).pow(2).mean()


for step in range(240):
    loss = ddpm_loss(net)
    opt.zero_grad()
    loss.backward()
    opt.step()
    ema.update(net)
    if step % 40 == 0:
        ema.copy_to(ema_net)
        with torch.no_grad():
            print(step, "loss", round(loss.item(), 4), "ema loss", round(ddpm_loss(ema_net, 512).item(), 4))
