# expect: healthy
# symptom: most parameters get no gradient and never move, the backbone stays in eval mode and under no_grad while training, the optimizer has only the head
# axis: none
# mended: none
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(14)

SIZE, CLASSES, BATCH = 32, 4, 16
PRETRAIN_STEPS, HEAD_STEPS = 150, 350


def scenes(n, seed):
    """Land-cover-like tiles: up to three regions of distinct texture; returns image, mask, main class."""
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[:SIZE, :SIZE].astype(np.float32)
    img = np.empty((n, 3, SIZE, SIZE), np.float32)
    mask = np.zeros((n, SIZE, SIZE), np.int64)
    for i in range(n):
        label = np.full((SIZE, SIZE), rng.integers(CLASSES))
        for _ in range(rng.integers(1, 3)):
            a = rng.uniform(0, np.pi)
            cut = (xx - rng.uniform(8, 24)) * np.cos(a) + (yy - rng.uniform(8, 24)) * np.sin(a) > 0
            label = np.where(cut, rng.integers(CLASSES), label)
        tex = np.stack([np.sin(xx * 1.5), np.sin(yy * 1.5), np.sin(0.7 * (xx + yy)), 0 * xx])
        base = np.take_along_axis(tex, label[None], 0)
        img[i] = base * rng.uniform(0.5, 1, (3, 1, 1)) + rng.normal(0, 0.35, (3, SIZE, SIZE))
        mask[i] = label
    main = np.array([np.bincount(m.ravel(), minlength=CLASSES).argmax() for m in mask])
    return torch.from_numpy(img), torch.from_numpy(mask), torch.from_numpy(main)


def conv_bn(i, o, s=1):
    return nn.Sequential(nn.Conv2d(i, o, 3, s, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU())


class Backbone(nn.Module):
    def __init__(self, w=16):
        super().__init__()
        self.s1 = nn.Sequential(conv_bn(3, w), conv_bn(w, w))
        self.s2 = nn.Sequential(conv_bn(w, 2 * w, 2), conv_bn(2 * w, 2 * w))
        self.s3 = nn.Sequential(conv_bn(2 * w, 3 * w, 2), conv_bn(3 * w, 3 * w))
        self.widths = (w, 2 * w, 3 * w)

    def forward(self, x):
        a = self.s1(x)
        b = self.s2(a)
        return a, b, self.s3(b)


class SegModel(nn.Module):
    def __init__(self, backbone):
        super().__init__()
        self.backbone = backbone.requires_grad_(False)
        self.lateral = nn.ModuleList(nn.Conv2d(c, 24, 1) for c in backbone.widths)
        self.fuse = nn.Sequential(
            nn.Conv2d(24, 24, 3, padding=1), nn.ReLU(), nn.Dropout2d(0.1), nn.Conv2d(24, CLASSES, 1)
        )

    def train(self, mode=True):
        super().train(mode)
        self.backbone.eval()
        return self

    def forward(self, x):
        with torch.no_grad():
            feats = self.backbone(x)
        maps = [
            F.interpolate(l(f), size=(SIZE, SIZE), mode="bilinear", align_corners=False)
            for l, f in zip(self.lateral, feats)
        ]
        return self.fuse(sum(maps))


def pretrain(img, main_class):
    net = Backbone()
    fc = nn.Linear(net.widths[-1], CLASSES)
    opt = torch.optim.Adam([*net.parameters(), *fc.parameters()], lr=2e-3)
    for step in range(PRETRAIN_STEPS):
        idx = torch.randint(0, len(img), (BATCH,))
        loss = F.cross_entropy(fc(net(img[idx])[-1].mean((2, 3))), main_class[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 30 == 0:
            print(f"pretrain step {step:4d} loss {loss.item():.4f}")
    return net


@torch.no_grad()
def mean_iou(model, img, mask):
    model.eval()
    pred = model(img).argmax(1)
    model.train()
    ious = [((pred == c) & (mask == c)).sum() / ((pred == c) | (mask == c)).sum().clamp(min=1) for c in range(CLASSES)]
    return torch.stack(ious).mean().item()


def main():
    img, _, main_class = scenes(600, 1)
    backbone = pretrain(img, main_class)
    img, mask, _ = scenes(400, 2)
    vimg, vmask, _ = scenes(100, 3)
    model = SegModel(backbone).train()
    params = [p for p in model.parameters() if p.requires_grad]
    total = sum(p.numel() for p in model.parameters())
    print(f"trainable {sum(p.numel() for p in params)} of {total}")
    opt = torch.optim.AdamW(params, lr=2e-3)
    sched = torch.optim.lr_scheduler.PolynomialLR(opt, HEAD_STEPS, power=0.9)
    t0 = time.time()
    for step in range(HEAD_STEPS):
        idx = torch.randint(0, len(img), (BATCH,))
        loss = F.cross_entropy(model(img[idx]), mask[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step % 25 == 0:
            print(f"step {step:4d} loss {loss.item():.4f} ({time.time() - t0:.1f}s)")
    print(f"valid mean IoU {mean_iou(model, vimg, vmask):.3f}")


if __name__ == "__main__":
    main()
