# expect: healthy
# symptom: most of the parameters are frozen and get no gradient, the optimizer has only the head, and the backbone is kept in eval mode while training (transfer to a small data set)
# axis: none
# mended: none
import os
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)

CONFIG = {
    "pretrain": {"n": 3200, "batch": 64, "epochs": 3, "lr": 3e-3},
    "transfer": {"n": 320, "batch": 32, "epochs": 30, "lr": 3e-3},
    "seed": 4,
}


def strokes(n, seed, task):
    """Pretraining task: which of eight strokes is drawn. Transfer task: which of three pairs of strokes."""
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[:20, :20]

    def stroke(k, cy, cx):
        dy, dx = yy - cy, xx - cx
        near = np.hypot(dy, dx) < 5.5
        return [
            near & (abs(dy) < 1),
            near & (abs(dx) < 1),
            near & (abs(dy - dx) < 1),
            near & (abs(dy + dx) < 1),
            abs(np.hypot(dy, dx) - 4) < 0.8,
            np.hypot(dy, dx) < 3,
            near & (dy % 3 == 0),
            near & (dx % 3 == 0),
        ][k]

    pairs = [(4, 0), (5, 2), (6, 7)]
    y = rng.integers(0, 8 if task == "pretrain" else 3, n)
    x = rng.normal(0, 0.5, (n, 1, 20, 20)).astype(np.float32)
    for i, k in enumerate(y):
        for kind in (k,) if task == "pretrain" else pairs[k]:
            x[i, 0] += stroke(kind, rng.integers(6, 14), rng.integers(6, 14))
    return TensorDataset(torch.from_numpy(x), torch.from_numpy(y))


class Backbone(nn.Module):
    out_dim = 48

    def __init__(self):
        super().__init__()

        def block(i, o, s):
            return [nn.Conv2d(i, o, 3, s, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU()]

        self.features = nn.Sequential(
            *block(1, 16, 1),
            nn.MaxPool2d(2),
            *block(16, 32, 1),
            nn.MaxPool2d(2),
            *block(32, self.out_dim, 1),
            nn.AdaptiveMaxPool2d(1),
            nn.Flatten(),
        )

    def forward(self, x):
        return self.features(x)


class Classifier(nn.Module):
    def __init__(self, n_classes):
        super().__init__()
        self.backbone = Backbone()
        self.fc = nn.Linear(Backbone.out_dim, n_classes)

    def forward(self, x):
        return self.fc(self.backbone(x))


class TransferClassifier(nn.Module):
    """Frozen features with their stored batch statistics and a new dropout head."""

    def __init__(self, weights_path, n_classes):
        super().__init__()
        self.backbone = Backbone()
        self.backbone.load_state_dict(torch.load(weights_path))
        for p in self.backbone.parameters():
            p.requires_grad = False
        self.head = nn.Sequential(nn.Dropout(0.2), nn.Linear(Backbone.out_dim, n_classes))

    def train(self, mode=True):
        super().train(mode)
        self.backbone.eval()
        return self

    def forward(self, x):
        with torch.no_grad():
            f = self.backbone(x)
        return self.head(f)


def train_epoch(model, loader, opt, tag, step, log_every=10):
    model.train()
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % log_every == 0:
            print(f"{tag} step {step:4d} loss {loss.item():.4f}", flush=True)
        step += 1
    return step


@torch.no_grad()
def accuracy(model, ds):
    model.eval()
    x, y = ds.tensors
    return (model(x).argmax(1) == y).float().mean().item()


def pretrain(cfg, path):
    loader = DataLoader(strokes(cfg["n"], 1, "pretrain"), cfg["batch"], shuffle=True)
    val = strokes(300, 2, "pretrain")
    model = Classifier(8)
    opt = torch.optim.AdamW(model.parameters(), lr=cfg["lr"])
    step = 0
    for epoch in range(cfg["epochs"]):
        step = train_epoch(model, loader, opt, "pretrain", step)
        print(f"pretrain epoch {epoch} val acc {accuracy(model, val):.3f}", flush=True)
    torch.save(model.backbone.state_dict(), path)


def transfer(cfg, path):
    loader = DataLoader(strokes(cfg["n"], 3, "transfer"), cfg["batch"], shuffle=True)
    val = strokes(300, 4, "transfer")
    model = TransferClassifier(path, 3)
    opt = torch.optim.SGD(model.head.parameters(), lr=cfg["lr"], momentum=0.9)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, cfg["epochs"])
    n_train = sum(p.numel() for p in model.parameters() if p.requires_grad)
    print(f"trainable {n_train} of {sum(p.numel() for p in model.parameters())}")
    step = 0
    for epoch in range(cfg["epochs"]):
        step = train_epoch(model, loader, opt, "transfer", step)
        sched.step()
        if epoch % 5 == 4:
            print(f"transfer epoch {epoch} val acc {accuracy(model, val):.3f}", flush=True)


if __name__ == "__main__":
    torch.manual_seed(CONFIG["seed"])
    with tempfile.TemporaryDirectory() as tmp:
        weights = os.path.join(tmp, "backbone.pt")
        pretrain(CONFIG["pretrain"], weights)
        transfer(CONFIG["transfer"], weights)
