# expect: sick
# symptom: the loss falls for 119 steps; from step 120, when unlabelled pictures come in, it climbs and the accuracy falls back towards chance
# axis: harness
# cause: the branch for the mixed (labelled plus unlabelled) steps never clears the gradients, so they add up from step to step
# says: (?i)missing-zero-grad|zero_?grad|gradients?.{0,50}(accumulat|add up|never (cleared|reset|zeroed)|not (cleared|reset|zeroed)|earlier steps|left over)|stale grad
# onset_step: 120
# fix: call zero_grad in both branches
# mended: clears the gradients in the mixed branch too
import os

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(203)
FIX = os.environ.get("MENDED") == "1"
gen = torch.Generator().manual_seed(8)
proto = torch.randn(8, 1, 12, 12, generator=gen)


def draw(n):
    y = torch.randint(0, 8, (n,), generator=gen)
    return proto[y] + 1.6 * torch.randn(n, 1, 12, 12, generator=gen), y


net = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Flatten(),
    nn.Linear(288, 8),
)
opt = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
vx, vy = draw(512)
for step in range(1, 321):
    x, y = draw(32)
    if step < 120:
        opt.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
    else:
        if FIX:
            opt.zero_grad()
        u, _ = draw(32)
        with torch.no_grad():
            soft = net(u).softmax(-1)
        sup = F.cross_entropy(net(x), y)
        con = F.mse_loss(net(u + 0.2 * torch.randn_like(u)).softmax(-1), soft)
        loss = sup + 0.5 * con
        loss.backward()
        opt.step()
    if step % 20 == 0:
        with torch.no_grad():
            acc = (net(vx).argmax(-1) == vy).float().mean()
        print(f"step {step} loss {loss.item():.4f} held-out accuracy {acc.item():.3f}")
