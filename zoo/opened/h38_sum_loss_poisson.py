# expect: healthy
# symptom: the loss is in the ten thousands and negative, and the counts have a heavy tail, as if the loss had the wrong reduction or the data were broken
# axis: loss
# cause: none
import torch
from torch import nn

torch.manual_seed(13)
w = torch.randn(10) * 0.4


def trips(n):
    x = torch.randn(n, 10)
    rate = torch.exp(2.0 + x @ w + 0.3 * torch.sin(2 * x[:, 0]))
    return x, torch.poisson(rate)


net = nn.Sequential(nn.Linear(10, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
loss_fn = nn.PoissonNLLLoss(log_input=True, reduction="sum")
opt = torch.optim.Adam(net.parameters(), lr=2e-3)
vx, vy = trips(2000)
base = loss_fn(vy.mean().log().expand(2000), vy).item()
for step in range(600):
    x, y = trips(1024)
    loss = loss_fn(net(x).squeeze(1), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 60 == 0 or step == 599:
        with torch.no_grad():
            v = loss_fn(net(vx).squeeze(1), vy).item()
        print(
            f"step {step} sum of nll {loss.item():.1f} valid {v:.1f} (constant rate {base:.1f}) largest count {int(y.max())}"
        )
