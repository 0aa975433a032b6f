# expect: healthy
# symptom: in the second part most parameters have no gradient, the backbone stays in eval mode while the loop trains, the optimizer holds the head and the adapters only
# axis: none
# mended: none
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(111)

SIZE, BATCH = 20, 32
PRE_STEPS, TUNE_STEPS = 160, 220


def draw(kind, rng):
    g = np.mgrid[0:SIZE, 0:SIZE].astype(float)
    cy, cx = rng.uniform(7, SIZE - 7, size=2)
    r = rng.uniform(3.5, 6)
    y, x = g[0] - cy, g[1] - cx
    if kind == 0:
        m = np.hypot(x, y) < r
    elif kind == 1:
        m = np.maximum(abs(x), abs(y)) < r * 0.9
    elif kind == 2:
        m = (abs(x) < 1.4) & (abs(y) < r) | (abs(y) < 1.4) & (abs(x) < r)
    elif kind == 3:
        m = (y > -r * 0.7) & (y < r * 0.7) & (abs(x) < (y + r) * 0.6)
    elif kind == 4:
        m = abs(np.hypot(x, y) - r) < 1.2
    else:
        m = (abs(x) + abs(y)) < r
    return m * rng.uniform(0.8, 1.4)


def make_set(n, kinds, seed, noise):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, len(kinds), size=n)
    x = np.stack([draw(kinds[k], rng) + noise * rng.normal(size=(SIZE, SIZE)) for k in y]).astype(np.float32)
    return torch.from_numpy(x).unsqueeze(1), torch.from_numpy(y)


class Backbone(nn.Module):
    def __init__(self, w=12):
        super().__init__()

        def block(i, o, s):
            return nn.Sequential(nn.Conv2d(i, o, 3, stride=s, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU())

        self.stages = nn.ModuleList([block(1, w, 1), block(w, 2 * w, 2), block(2 * w, 4 * w, 2)])
        self.width = 4 * w

    def forward(self, x, adapters=None):
        for i, s in enumerate(self.stages):
            x = s(x)
            if adapters is not None:
                x = x + adapters[i](x)
        return torch.cat([x.mean((2, 3)), x.amax((2, 3))], dim=1)


class Adapter(nn.Module):
    """Bottleneck of 1x1 convolutions; starts as nothing."""

    def __init__(self, c, r=4):
        super().__init__()
        self.down, self.up = nn.Conv2d(c, r, 1), nn.Conv2d(r, c, 1)
        nn.init.zeros_(self.up.weight)
        nn.init.zeros_(self.up.bias)

    def forward(self, x):
        return self.up(F.relu(self.down(x)))


class Tuned(nn.Module):
    def __init__(self, backbone, classes):
        super().__init__()
        self.backbone = backbone
        for p in backbone.parameters():
            p.requires_grad_(False)
        w = backbone.width
        self.adapters = nn.ModuleList(Adapter(c) for c in (w // 4, w // 2, w))
        self.head = nn.Linear(2 * w, classes)

    def train(self, mode=True):
        super().train(mode)
        self.backbone.eval()  # keeps the statistics of the big data set
        return self

    def forward(self, x):
        return self.head(self.backbone(x, self.adapters))


def fit(model, params, data, steps, lr, tag, gen):
    opt = torch.optim.AdamW(params, lr=lr, weight_decay=1e-3)
    x, y = data
    t0 = time.time()
    model.train()
    for step in range(steps):
        idx = torch.randint(0, len(x), (BATCH,), generator=gen)
        loss = F.cross_entropy(model(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0:
            print(f"{tag} step {step} loss {loss.item():.4f} t {time.time() - t0:.1f}")


@torch.no_grad()
def accuracy(model, data):
    model.eval()
    return (model(data[0]).argmax(1) == data[1]).float().mean().item()


def main():
    gen = torch.Generator().manual_seed(1)
    backbone = Backbone()
    base = nn.Sequential(backbone, nn.Linear(2 * backbone.width, 4))
    fit(base, base.parameters(), make_set(2500, [0, 1, 2, 3], 1, 0.4), PRE_STEPS, 3e-3, "pretrain", gen)
    print(f"pretrain val accuracy {accuracy(base, make_set(300, [0, 1, 2, 3], 2, 0.4)):.3f}")
    model = Tuned(backbone, 3)
    trainable = [p for p in model.parameters() if p.requires_grad]
    share = sum(p.numel() for p in trainable) / sum(p.numel() for p in model.parameters())
    print(f"trainable share {share:.3f}")
    fit(model, trainable, make_set(400, [4, 5, 2], 3, 0.4), TUNE_STEPS, 3e-3, "tune", gen)
    print(f"tune val accuracy {accuracy(model, make_set(300, [4, 5, 2], 4, 0.4)):.3f}")


if __name__ == "__main__":
    main()
