# expect: healthy
# fault: tiny loss from the first step, sigmoid inside a loss
# note: focal loss on 5 % positives with the bias initialised at the prior, as RetinaNet does; the loss starts small by design.
import math
import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(55)


def focal(logit, y, gamma=2.0, alpha=0.75):
    ce = F.binary_cross_entropy_with_logits(logit, y, reduction="none")
    p = torch.sigmoid(logit)
    pt = p * y + (1 - p) * (1 - y)
    w = alpha * y + (1 - alpha) * (1 - y)
    return (w * (1 - pt) ** gamma * ce).mean()


net = nn.Sequential(nn.Linear(10, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 1))
nn.init.constant_(net[-1].bias, -math.log(19))
opt = torch.optim.Adam(net.parameters(), lr=4e-3)
for s in range(240):
    x = torch.randn(256, 10)
    y = ((x[:, 0] + x[:, 1] * x[:, 2]) > 2.2).float()
    loss = focal(net(x).squeeze(1), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if s % 24 == 0:
        print(s, f"{loss.item():.5f}", "positives", int(y.sum()))
