# expect: sick
# fault: the EMA shares its tensors with the model
# onset_step: 0
# says: (?i)(\bema\b|moving average|averaged|shadow|\bshar(e|es|ed|ing)\b|alias|same (tensor|storage|memory)|momentum (teacher|model))
# note: shadow = model.state_dict() without clone(), so the "average" always is the current model (and mul_/add_ write into the weights).
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(31)


class EMA:
    def __init__(self, model, decay=0.98):
        self.decay = decay
        self.shadow = {k: v for k, v in model.state_dict().items()}

    @torch.no_grad()
    def update(self, model):
        for k, v in model.state_dict().items():
            self.shadow[k].mul_(self.decay).add_(v, alpha=1 - self.decay)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 2))

    def forward(self, x, t):
        return self.net(torch.cat([x, t], 1))


def moons(n):
    a = torch.rand(n) * torch.pi
    up = (torch.rand(n) < 0.5).float() * 2 - 1
    return torch.stack([torch.cos(a) + 0.5 * (1 - up), up * torch.sin(a) + 0.3 * up], 1) + 0.05 * torch.randn(n, 2)


def loss_of(model, n):
    x0, t, e = moons(n), torch.rand(n, 1), torch.randn(n, 2)
    xt = torch.cos(t * 1.57) * x0 + torch.sin(t * 1.57) * e
    return (model(xt, t) - e).pow(2).mean()


model = Denoiser()
ema = EMA(model)
opt = torch.optim.Adam(model.parameters(), lr=5e-3)
for step in range(220):
    loss = loss_of(model, 32)
    opt.zero_grad()
    loss.backward()
    opt.step()
    ema.update(model)
    if step % 20 == 0:
        print(step, loss.item())
averaged = Denoiser()
averaged.load_state_dict(ema.shadow)
with torch.no_grad():
    gap = sum((a - b).abs().sum() for a, b in zip(model.parameters(), averaged.parameters()))
print("final ema loss", loss_of(averaged, 4000).item(), "gap", gap.item())
