# expect: healthy
# symptom: in the second stage most parameters have no gradient, the backbone stays in eval mode all through training and the optimizer holds two layers only
# axis: none
# mended: none
import math
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(14)
rng = np.random.default_rng(14)
S = 20


def blob_image(kind, colour):
    yy, xx = np.mgrid[0:S, 0:S]
    cy, cx = rng.uniform(7, 13, size=2)
    r = rng.uniform(3.5, 5.5)
    th = rng.uniform(-0.25, 0.25)
    u = (xx - cx) * math.cos(th) + (yy - cy) * math.sin(th)
    v = -(xx - cx) * math.sin(th) + (yy - cy) * math.cos(th)
    shape = [
        u**2 + v**2 < r**2,
        np.maximum(np.abs(u), np.abs(v)) < r * 0.85,
        np.abs(u) + np.abs(v) < r * 1.2,
        (np.abs(u) < 1.4) | (np.abs(v) < 1.4),
        np.abs(np.hypot(u, v) - r * 0.8) < 1.2,
        np.abs(v) < 1.6,
    ][kind]
    if kind == 3:
        shape = shape & (np.maximum(np.abs(u), np.abs(v)) < r)
    img = 0.3 * rng.normal(size=(3, S, S))
    for c in range(3):
        img[c] += shape * (1.0 if c == colour else 0.25)
    return img.astype(np.float32)


def make_split(n, kinds):
    """Labels count shape and colour jointly: len(kinds) * 3 classes."""
    x, y = [], []
    for _ in range(n):
        k, c = int(rng.integers(len(kinds))), int(rng.integers(3))
        x.append(blob_image(kinds[k], c))
        y.append(k * 3 + c)
    return torch.from_numpy(np.array(x)), torch.tensor(y)


class Backbone(nn.Module):
    def __init__(self, c=20):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, c, 3, padding=1, bias=False),
            nn.BatchNorm2d(c),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(c, 2 * c, 3, padding=1, bias=False),
            nn.BatchNorm2d(2 * c),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(2 * c, 2 * c, 3, padding=1, bias=False),
            nn.BatchNorm2d(2 * c),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
            nn.Dropout(0.1),
        )
        self.dim = 8 * c

    def forward(self, x):
        return self.net(x)


class Classifier(nn.Module):
    def __init__(self, backbone, head, frozen=False):
        super().__init__()
        self.backbone, self.head, self.frozen = backbone, head, frozen
        if frozen:
            backbone.requires_grad_(False)
            backbone.eval()

    def train(self, mode=True):
        super().train(mode)
        if self.frozen:
            self.backbone.eval()
        return self

    def forward(self, x):
        return self.head(self.backbone(x))


@torch.no_grad()
def accuracy(model, x, y):
    model.eval()
    acc = (model(x).argmax(-1) == y).float().mean().item()
    model.train()
    return acc


def fit(model, params, data, val, steps, lr, tag):
    opt = torch.optim.AdamW(params, lr=lr, weight_decay=1e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=steps)
    x, y = data
    model.train()
    for step in range(steps):
        idx = torch.randint(0, len(x), (48,))
        loss = F.cross_entropy(model(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step % 25 == 0:
            print(f"{tag} step {step:4d} loss {loss.item():.4f}")
    print(f"{tag} val acc {accuracy(model, *val):.3f}")


backbone = Backbone()
source = Classifier(backbone, nn.Linear(backbone.dim, 12))
fit(source, source.parameters(), make_split(3000, [0, 1, 3, 5]), make_split(400, [0, 1, 3, 5]), 250, 2e-3, "pretrain")

target = Classifier(backbone, nn.Sequential(nn.Linear(backbone.dim, 64), nn.ReLU(), nn.Linear(64, 9)), frozen=True)
trainable = [p for p in target.parameters() if p.requires_grad]
print(f"fine-tuning {sum(p.numel() for p in trainable)} of {sum(p.numel() for p in target.parameters())} parameters")
fit(target, trainable, make_split(600, [2, 4, 1]), make_split(400, [2, 4, 1]), 300, 3e-3, "finetune")
