# expect: healthy
# fault: none
# note: EMA copy by AveragedModel, updated after each step and used for evaluation.
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

torch.manual_seed(20)
net = nn.Sequential(nn.Linear(8, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 1))
ema = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.95))
opt = torch.optim.AdamW(net.parameters(), lr=3e-3)
f = lambda x: torch.cos(x[:, :1] * 2) + x[:, 1:2] ** 2 * 0.3
xv = torch.randn(256, 8)
for s in range(220):
    x = torch.randn(64, 8)
    loss = nn.functional.mse_loss(net(x), f(x) + 0.3 * torch.randn(64, 1))
    opt.zero_grad()
    loss.backward()
    opt.step()
    ema.update_parameters(net)
    if s % 40 == 0:
        with torch.no_grad():
            print(s, "train", round(loss.item(), 3), "ema val", round(nn.functional.mse_loss(ema(xv), f(xv)).item(), 3))
