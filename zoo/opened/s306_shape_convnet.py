# expect: sick
# symptom: the loss of the convolutional net stays at ln(5) and the accuracy at one fifth for the whole run
# axis: model
# cause: all weights start from a normal of width 0.01, so the signal and its gradient vanish over twelve layers without normalisation
# says: (initiali[sz]\w*|\binit\b|starting weights?|std ?=? ?0\.01|weights? (start|begin).{0,20}(small|tiny)|(too small|tiny) (initial )?weights?)|vanish\w*|(signal|activation|gradient)s?.{0,40}(die|dies|shrink|decay|fade|collaps|too small)
# onset_step: 1
# fix: He initialisation for the convolutions
# mended: MENDED=1
import os

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
CLASSES = ["disc", "square", "ring", "cross", "stripes"]


def draw(kind, g, size=16):
    yy, xx = np.mgrid[0:size, 0:size].astype(np.float32)
    cx, cy, r = g.uniform(5, 10), g.uniform(5, 10), g.uniform(3, 5)
    d = np.hypot(xx - cx, yy - cy)
    if kind == 0:
        img = d < r
    elif kind == 1:
        img = np.maximum(abs(xx - cx), abs(yy - cy)) < r * 0.85
    elif kind == 2:
        img = abs(d - r) < 1.0
    elif kind == 3:
        img = ((abs(xx - cx) < 1) | (abs(yy - cy) < 1)) & (np.maximum(abs(xx - cx), abs(yy - cy)) < r)
    else:
        img = (np.maximum(abs(xx - cx), abs(yy - cy)) < r) & ((xx + yy) % 4 < 2)
    return img * g.uniform(0.6, 1.2) + g.normal(0, 0.15, (size, size))


def make_set(n, seed):
    g = np.random.default_rng(seed)
    y = g.integers(0, 5, n)
    x = np.stack([draw(k, g) for k in y]).astype(np.float32)
    return torch.tensor((x - 0.2) / 0.4).unsqueeze(1), torch.tensor(y)


class Backbone(nn.Module):
    def __init__(self, width=16, depth=10):
        super().__init__()
        self.stem = nn.Conv2d(1, width, 3, stride=2, padding=1)
        self.blocks = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(depth))
        self.fc = nn.Linear(width * 16, len(CLASSES))
        self.apply(self._init_weights)

    def _init_weights(self, m):
        if isinstance(m, nn.Conv2d):
            if os.environ.get("MENDED") == "1":
                nn.init.kaiming_normal_(m.weight, nonlinearity="relu")
            else:
                nn.init.normal_(m.weight, std=0.01)
            nn.init.zeros_(m.bias)
        elif isinstance(m, nn.Linear):
            nn.init.normal_(m.weight, std=0.01)
            nn.init.zeros_(m.bias)

    def forward(self, x):
        x = F.relu(self.stem(x))
        for i, block in enumerate(self.blocks):
            x = F.relu(block(x))
            if i == 3:
                x = F.max_pool2d(x, 2)
        return self.fc(x.flatten(1))


def main():
    torch.manual_seed(21)
    x, y = make_set(3000, 1)
    xv, yv = make_set(400, 2)
    net = Backbone()
    opt = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    sched = torch.optim.lr_scheduler.MultiStepLR(opt, [300, 360], gamma=0.2)
    step = 0
    while step < 400:
        order = torch.randperm(len(x))
        for i in range(0, len(x) - 63, 64):
            b = order[i : i + 64]
            loss = F.cross_entropy(net(x[b]), y[b])
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            step += 1
            if step % 25 == 0:
                print(f"step {step} loss {loss.item():.4f}")
        with torch.no_grad():
            print(f"  valid {(net(xv).argmax(1) == yv).float().mean().item():.3f}")


main()
