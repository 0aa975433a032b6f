# expect: sick
# fault: the weight of one part of the loss jumps by 150
# onset_step: 20
# says: (?i)(loss|gradient|weight|rate|progress|spike|diverg|part|term)
# note: box_weight is raised to 1.5 after a warm-up of 20 steps, typed as 150.
from dataclasses import dataclass
import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)


@dataclass
class LossWeights:
    cls: float = 1.0
    box: float = 1.0
    obj: float = 1.0


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Conv2d(1, 12, 3, 2, 1),
            nn.ReLU(),
            nn.Conv2d(12, 24, 3, 2, 1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(384, 48),
            nn.ReLU(),
        )
        self.cls, self.box, self.obj = nn.Linear(48, 3), nn.Linear(48, 4), nn.Linear(48, 1)

    def forward(self, x):
        h = self.trunk(x)
        return self.cls(h), self.box(h), self.obj(h).squeeze(1)


def scene(n):
    x = 0.3 * torch.randn(n, 1, 16, 16)
    k, there = torch.randint(0, 3, (n,)), (torch.rand(n) < 0.8)
    box = torch.zeros(n, 4)
    for i in range(n):
        cy, cx, r = int(torch.randint(4, 12, ())), int(torch.randint(4, 12, ())), int(k[i]) + 1
        box[i] = torch.tensor([cy, cx, r, r]) / 16
        if there[i]:
            x[i, 0, cy - r : cy + r + 1, cx - r : cx + r + 1] += 1.5
    return x, k, box, there


torch.manual_seed(12)
net, lw = Detector(), LossWeights()
opt = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.8)
for step in range(140):
    if step == 20:
        lw.box = 150.0
    x, k, box, there = scene(24)
    c, b, o = net(x)
    parts = {
        "cls": F.cross_entropy(c[there], k[there]),
        "box": F.mse_loss(b[there], box[there]),
        "obj": F.binary_cross_entropy_with_logits(o, there.float()),
    }
    loss = lw.cls * parts["cls"] + lw.box * parts["box"] + lw.obj * parts["obj"]
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 10 == 0:
        print(step, f"{loss.item():.4f}", {n: round(v.item(), 4) for n, v in parts.items()})
