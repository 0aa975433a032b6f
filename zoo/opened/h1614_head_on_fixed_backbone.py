# expect: healthy
# symptom: in the second stage the backbone stays in eval mode during training, its weights never move and are not in the optimizer, with only a few hundred small images to learn from
# axis: none
# mended: none
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(15)
rng = np.random.default_rng(15)

SIZE = 20


def textures(n, classes, seed):
    """Oriented gratings; source task: eight classes of angle and pitch, target task: four other combinations."""
    g = np.random.default_rng(seed)
    ang, pitch = g.uniform(0, np.pi, classes), g.uniform(0.5, 1.5, classes)
    y = rng.integers(0, classes, n)
    yy, xx = np.mgrid[0:SIZE, 0:SIZE]
    a = (ang[y] + rng.normal(0, 0.12, n))[:, None, None]
    u = xx * np.cos(a) + yy * np.sin(a)
    im = np.sin(pitch[y][:, None, None] * u + rng.uniform(0, 6.28, (n, 1, 1))) + 0.9 * rng.normal(size=(n, SIZE, SIZE))
    return torch.from_numpy(im[:, None].astype(np.float32)), torch.from_numpy(y)


class Backbone(nn.Module):
    def __init__(self, c=24):
        super().__init__()

        def stage(i, o):
            return nn.Sequential(
                nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(), nn.MaxPool2d(2)
            )

        self.net = nn.Sequential(
            stage(1, c),
            stage(c, 2 * c),
            nn.Conv2d(2 * c, 2 * c, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
        self.dim = 2 * c

    def forward(self, x):
        return self.net(x)


class Classifier(nn.Module):
    def __init__(self, backbone, classes, tune_backbone):
        super().__init__()
        self.backbone, self.tune_backbone = backbone, tune_backbone
        self.head = nn.Sequential(nn.Dropout(0.1), nn.Linear(backbone.dim, 64), nn.ReLU(), nn.Linear(64, classes))
        if not tune_backbone:
            self.backbone.requires_grad_(False)

    def train(self, mode=True):
        super().train(mode)
        if not self.tune_backbone:
            self.backbone.eval()  # keep the source statistics of the norm layers
        return self

    def forward(self, x):
        with torch.set_grad_enabled(self.tune_backbone and torch.is_grad_enabled()):
            f = self.backbone(x)
        return self.head(f)


def fit(model, params, x, y, steps, batch, lr, name):
    opt = torch.optim.AdamW(params, lr=lr)
    model.train()
    for step in range(steps):
        i = torch.randint(0, len(x), (batch,))
        loss = F.cross_entropy(model(x[i]), y[i])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 25 == 0 or step == steps - 1:
            print(f"{name} step {step:4d}  loss {loss.item():.4f}")


@torch.no_grad()
def accuracy(model, x, y):
    model.eval()
    acc = (model(x).argmax(1) == y).float().mean().item()
    model.train()
    return acc


def main():
    xs, ys = textures(3000, 8, seed=1)
    source = Classifier(Backbone(), 8, tune_backbone=True)
    fit(source, source.parameters(), xs, ys, 250, 32, 2e-3, "source")
    xs2, ys2 = textures(500, 8, seed=1)
    print(f"source val acc {accuracy(source, xs2, ys2):.3f}")

    xt, yt = textures(240, 4, seed=5)
    xv, yv = textures(600, 4, seed=5)
    target = Classifier(source.backbone, 4, tune_backbone=False)
    fit(target, target.head.parameters(), xt, yt, 400, 24, 3e-3, "target")
    print(f"target val acc {accuracy(target, xv, yv):.3f}")


if __name__ == "__main__":
    main()
