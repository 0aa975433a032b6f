# expect: healthy
# symptom: nearly all parameters never move, BatchNorm stays in eval mode, dropout is off: looks like a frozen or detached model
# axis: model
# cause: healthy: on purpose only the linear head is trained on features computed once under no_grad by a fixed convolutional backbone, and the head reaches a high accuracy
# says: none
# onset_step: none
# fix: none
# mended: none
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)


def audio_like_images(n, gen, size=24):
    """Small spectrogram-like patches of 5 kinds: rising, falling, steady, click, noise burst."""
    y = torch.randint(0, 5, (n,), generator=gen)
    x = 0.25 * torch.randn(n, 1, size, size, generator=gen)
    t = torch.arange(size)
    for i in range(n):
        f0 = int(torch.randint(8, 16, (1,), generator=gen))
        k = int(y[i])
        if k == 0:
            x[i, 0, (f0 - 6 + t // 2).clamp(0, size - 1), t] += 1
        elif k == 1:
            x[i, 0, (f0 + 6 - t // 2).clamp(0, size - 1), t] += 1
        elif k == 2:
            x[i, 0, f0, :] += 1
        elif k == 3:
            x[i, 0, :, f0] += 1
        else:
            x[i, 0, 4:20, f0 - 4 : f0 + 4] += 0.7 * torch.randn(16, 8, generator=gen)
    return x, y


class Backbone(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.c1 = nn.Conv2d(1, width, 5, padding=2)
        self.b1 = nn.BatchNorm2d(width)
        self.c2 = nn.Conv2d(width, width, 3, padding=1, groups=4)
        self.b2 = nn.BatchNorm2d(width)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.b1(self.c1(x))), 2)
        x = F.relu(self.b2(self.c2(x)))
        return torch.cat([x.amax((2, 3)), x.mean((2, 3)), x.std((2, 3))], 1)


class Probe(nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        self.backbone = Backbone()
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(48 * 3, classes)
        self.backbone.requires_grad_(False)

    def train(self, mode=True):
        super().train(mode)
        self.backbone.eval()
        return self

    def forward(self, x):
        with torch.no_grad():
            h = self.backbone(x)
        return self.head(self.drop(h))


def calibrate(model, x):
    """Give the fixed BatchNorm layers statistics of the data, once, before training."""
    model.backbone.train()
    with torch.no_grad():
        for chunk in x.split(200):
            model.backbone(chunk)
    model.backbone.eval()


def main():
    torch.manual_seed(21)
    gen = torch.Generator().manual_seed(21)
    xtr, ytr = audio_like_images(2000, gen)
    xte, yte = audio_like_images(500, gen)

    model = Probe()
    calibrate(model, xtr)
    trainable = [p for p in model.parameters() if p.requires_grad]
    print(f"{sum(p.numel() for p in trainable)} of {sum(p.numel() for p in model.parameters())} parameters are trained")
    opt = torch.optim.Adam(trainable, lr=5e-3)
    total = 480

    model.train()
    for step in range(1, total + 1):
        for grp in opt.param_groups:
            grp["lr"] = 5e-3 * 0.5 * (1 + math.cos(math.pi * step / total))
        idx = torch.randint(0, len(xtr), (64,), generator=gen)
        loss = F.cross_entropy(model(xtr[idx]), ytr[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 40 == 0:
            model.eval()
            with torch.no_grad():
                acc = (model(xte).argmax(1) == yte).float().mean().item()
            model.train()
            print(f"step {step:3d} loss {loss.item():.4f} test accuracy {acc:.3f}")


if __name__ == "__main__":
    main()
