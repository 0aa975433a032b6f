# expect: healthy
# symptom: train() is overridden so that the backbone stays in eval mode for ever, its parameters are frozen and missing from the optimizer, features are computed under no_grad; only adapters and head move
# axis: none
# mended: none
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
SIZE = 16


def make_patterns(n, seed, task):
    """Source task: 8 kinds of gratings. Target task: 4 groups of two-grating mixtures, few examples, darker, noisier."""
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[0:SIZE, 0:SIZE]

    def grating(kind):
        th, f = np.pi * (kind % 4) / 4 + rng.normal(0, 0.08), (0.5, 1.0)[kind // 4]
        return np.sin(f * (np.cos(th) * xx + np.sin(th) * yy) + rng.uniform(0, 6.28))

    if task == "source":
        y = rng.integers(0, 8, n)
        img = np.stack([grating(k) for k in y]) + rng.normal(0, 0.5, (n, SIZE, SIZE))
    else:
        y = rng.integers(0, 4, n)
        pairs = [(0, 5), (1, 6), (2, 7), (3, 4)]
        img = np.stack([0.4 * grating(pairs[k][0]) + 0.4 * grating(pairs[k][1]) - 0.5 for k in y])
        img = img + rng.normal(0, 0.4, img.shape)
    return torch.tensor(img, dtype=torch.float32).unsqueeze(1), torch.tensor(y)


class Backbone(nn.Module):
    def __init__(self, c=16):
        super().__init__()
        self.stages = nn.ModuleList(
            [
                nn.Sequential(nn.Conv2d(1, c, 5, padding=2), nn.BatchNorm2d(c), nn.ReLU(), nn.MaxPool2d(2)),
                nn.Sequential(nn.Conv2d(c, 2 * c, 3, padding=1), nn.BatchNorm2d(2 * c), nn.ReLU(), nn.MaxPool2d(2)),
                nn.Sequential(nn.Conv2d(2 * c, 2 * c, 3, padding=1), nn.BatchNorm2d(2 * c), nn.ReLU()),
            ]
        )

    def forward(self, x):
        maps = []
        for stage in self.stages:
            x = stage(x)
            maps.append(x.mean((2, 3)))
        return maps


class FewShotModel(nn.Module):
    def __init__(self, backbone, dims=(16, 32, 32), classes=4):
        super().__init__()
        self.backbone = backbone.requires_grad_(False)
        self.adapters = nn.ModuleList(nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 32), nn.GELU()) for d in dims)
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(32 * len(dims), classes)
        self.train()

    def train(self, mode=True):
        super().train(mode)
        self.backbone.eval()
        return self

    def forward(self, x):
        with torch.no_grad():
            maps = self.backbone(x)
        h = torch.cat([a(m) for a, m in zip(self.adapters, maps)], 1)
        return self.head(self.drop(h))


def fit(model, params, x, y, steps, lr, tag, head=None):
    opt = torch.optim.AdamW(params, lr=lr, weight_decay=1e-3)
    for step in range(steps):
        i = torch.randint(0, len(x), (48,))
        out = model(x[i]) if head is None else head(model(x[i])[-1])
        loss = F.cross_entropy(out, y[i])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 30 == 0:
            print(f"{tag} step {step:4d} loss {loss.item():.4f}", flush=True)


def main():
    torch.manual_seed(0)
    backbone, head = Backbone(), nn.Linear(32, 8)
    x, y = make_patterns(3000, 1, "source")
    fit(backbone, [*backbone.parameters(), *head.parameters()], x, y, 240, 2e-3, "pretrain", head)

    x, y = make_patterns(240, 2, "target")
    vx, vy = make_patterns(600, 3, "target")
    model = FewShotModel(backbone)
    live = [p for p in model.parameters() if p.requires_grad]
    print(f"training {sum(p.numel() for p in live)} of {sum(p.numel() for p in model.parameters())} parameters")
    fit(model, live, x, y, 420, 1e-3, "adapt")
    model.eval()
    with torch.no_grad():
        print(f"target accuracy {(model(vx).argmax(1) == vy).float().mean().item():.3f}")


if __name__ == "__main__":
    main()
