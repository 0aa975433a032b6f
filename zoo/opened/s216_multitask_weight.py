# expect: sick
# symptom: nothing explodes; the total loss falls, but the main task (species) stays far below what the data allow while the auxiliary one (length) takes everything
# axis: loss
# cause: the auxiliary regression of the raw length in millimetres enters with weight 50 instead of 0.0005 and drowns the gradient of the main task
# says: (?i)loss-function-misuse|(auxiliar|length|regression|term|task|loss).{0,60}(weight|dominat|outweigh|drown|too (large|big|strong|heavy)|scale|balance|coefficient)|(weight|coefficient|balance).{0,40}(loss|term|task)|dominat
# onset_step: 1
# fix: weight 0.0005 for the auxiliary loss
# mended: weight 0.0005
import os

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(216)
W_LEN = 5e-4 if os.environ.get("MENDED") == "1" else 50.0
gen = torch.Generator().manual_seed(17)
proto = torch.randn(6, 20, generator=gen)


def fish(n):
    y = torch.randint(0, 6, (n,), generator=gen)
    x = proto[y] + 1.2 * torch.randn(n, 20, generator=gen)
    mm = 60 + 12 * x[:, 0] - 9 * x[:, 1] * x[:, 2] + 6 * torch.randn(n, generator=gen)
    return x, y, mm


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 24), nn.ReLU())
        self.species, self.length = nn.Linear(24, 6), nn.Linear(24, 1)

    def forward(self, x):
        h = self.body(x)
        return self.species(h), self.length(h).squeeze(1)


net = TwoHeads()
opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
vx, vy, _ = fish(1024)
for step in range(1, 321):
    x, y, mm = fish(48)
    logits, length = net(x)
    main, aux = F.cross_entropy(logits, y), F.smooth_l1_loss(length, mm)
    loss = main + W_LEN * aux
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()
    if step % 20 == 0:
        with torch.no_grad():
            acc = (net(vx)[0].argmax(-1) == vy).float().mean()
        print(
            f"step {step} loss {loss.item():.3f} main {main.item():.4f} aux {aux.item():.3f} accuracy {acc.item():.3f}"
        )
