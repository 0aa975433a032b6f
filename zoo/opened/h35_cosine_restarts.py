# expect: healthy
# symptom: the learning rate jumps up a hundredfold at steps 120 and 360 and the loss has a bump at each, as if the schedule were wrong (warm restarts)
# axis: schedule
# cause: none
import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingWarmRestarts

torch.manual_seed(88)


class GRUForecast(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(1, 40, batch_first=True)
        self.out = nn.Linear(40, 1)

    def forward(self, x):
        return self.out(self.gru(x)[0][:, -1])


def waves(n, t=30):
    f, p = 0.15 + 0.4 * torch.rand(n, 1), 6.28 * torch.rand(n, 1)
    k = torch.arange(t + 1.0)
    s = torch.sin(f * k + p) + 0.5 * torch.sin(2.3 * f * k) + 0.02 * torch.randn(n, t + 1)
    return s[:, :-1, None], s[:, -1:]


model = GRUForecast()
opt = torch.optim.Adam(model.parameters(), lr=6e-3)
sched = CosineAnnealingWarmRestarts(opt, T_0=120, T_mult=2, eta_min=6e-5)
for step in range(840):
    x, y = waves(32)
    loss = nn.functional.mse_loss(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    if step % 60 == 0 or step == 839:
        print(f"{step:4d} lr {sched.get_last_lr()[0]:.2e} loss {loss.item():.5f}")
