# expect: sick
# symptom: training loss goes down a little and then sits on a plateau; the predicted boxes have about the right size but the horizontal position is always near the middle of the picture, IoU stays poor
# axis: data
# cause: the random horizontal flip of the augmentation flips the picture but not the box: in half of the samples the x coordinate of the target is wrong
# says: (flip|mirror|augment)\w*.{0,120}(box|label|target|coordinate|annotation|cx|x[- ]?(coord|cent))|(box|label|target|coordinate|annotation|cx)\w*.{0,120}(flip|mirror|augment)
# onset_step: 0
# fix: mirror the box as well (cx -> 1 - cx) when the picture is flipped
# mended: the flip also mirrors the box's centre
import argparse
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)


class SceneDataset(Dataset):
    """One object (filled box, frame or cross) on a noisy ground, box as (cx, cy, w, h) in 0..1."""

    def __init__(self, n, size, seed, train):
        self.train = train
        self.rng = np.random.default_rng(seed + 100)
        rng = np.random.default_rng(seed)
        self.images = rng.normal(0, 0.2, (n, 1, size, size)).astype(np.float32)
        self.boxes = np.zeros((n, 4), np.float32)
        self.labels = rng.integers(0, 3, n)
        for i, kind in enumerate(self.labels):
            w, h = rng.integers(7, 15, 2)
            x0, y0 = rng.integers(0, size - w), rng.integers(0, size - h)
            obj = np.zeros((h, w), np.float32)
            if kind == 0:
                obj[:] = 0.8
            elif kind == 1:
                obj[[0, 1, -1, -2], :] = obj[:, [0, 1, -1, -2]] = 1.0
            else:
                obj[h // 2 - 1 : h // 2 + 1, :] = obj[:, w // 2 - 1 : w // 2 + 1] = 1.0
            self.images[i, 0, y0 : y0 + h, x0 : x0 + w] += obj
            self.boxes[i] = [(x0 + w / 2) / size, (y0 + h / 2) / size, w / size, h / size]

    def __len__(self):
        return len(self.images)

    def augment(self, img, box):
        img = img * self.rng.uniform(0.8, 1.2) + self.rng.normal(0, 0.05)
        if self.rng.random() < 0.5:
            img = img[:, :, ::-1]
            if MENDED:
                box[0] = 1.0 - box[0]
        return np.ascontiguousarray(img, dtype=np.float32), box

    def __getitem__(self, i):
        img, box = self.images[i], self.boxes[i].copy()
        if self.train:
            img, box = self.augment(img, box)
        return torch.from_numpy(img), torch.from_numpy(box), int(self.labels[i])


def conv_block(c_in, c_out):
    return nn.Sequential(
        nn.Conv2d(c_in, c_out, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(c_out), nn.ReLU(inplace=True)
    )


class Detector(nn.Module):
    def __init__(self, n_classes=3):
        super().__init__()
        self.backbone = nn.Sequential(conv_block(1, 16), conv_block(16, 32), conv_block(32, 32), nn.Flatten())
        self.neck = nn.Sequential(nn.Linear(32 * 16, 96), nn.ReLU(inplace=True))
        self.cls_head = nn.Linear(96, n_classes)
        self.box_head = nn.Linear(96, 4)

    def forward(self, x):
        f = self.neck(self.backbone(x))
        return self.cls_head(f), self.box_head(f).sigmoid()


def iou(a, b):
    a1, a2 = a[:, :2] - a[:, 2:] / 2, a[:, :2] + a[:, 2:] / 2
    b1, b2 = b[:, :2] - b[:, 2:] / 2, b[:, :2] + b[:, 2:] / 2
    wh = (torch.min(a2, b2) - torch.max(a1, b1)).clamp(min=0)
    inter = wh.prod(1)
    return inter / (a[:, 2:].prod(1) + b[:, 2:].prod(1) - inter + 1e-7)


def train_epoch(model, loader, opt, sched, epoch, box_weight):
    model.train()
    for i, (img, box, label) in enumerate(loader):
        logits, pred = model(img)
        loss_cls = F.cross_entropy(logits, label)
        loss_box = F.smooth_l1_loss(pred, box, beta=0.05)
        loss = loss_cls + box_weight * loss_box
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if i % 10 == 0:
            print(
                f"epoch {epoch} iter {i:3d} loss {loss.item():.4f} cls {loss_cls.item():.4f} box {loss_box.item():.4f}",
                flush=True,
            )


@torch.no_grad()
def validate(model, loader):
    model.eval()
    ious, hits, err = [], 0, 0
    for img, box, label in loader:
        logits, pred = model(img)
        ious.append(iou(pred, box))
        hits += (logits.argmax(1) == label).sum().item()
        err = err + (pred - box).abs().sum(0)
    n = len(loader.dataset)
    return torch.cat(ious).mean().item(), hits / n, (err / n).tolist()


def main(args):
    torch.manual_seed(args.seed)
    train_loader = DataLoader(SceneDataset(args.n_train, 32, 1, train=True), args.batch, shuffle=True)
    val_loader = DataLoader(SceneDataset(300, 32, 2, train=False), 100)
    model = Detector()
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-4)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, args.lr, total_steps=args.epochs * len(train_loader))
    for epoch in range(args.epochs):
        train_epoch(model, train_loader, opt, sched, epoch, args.box_weight)
        miou, acc, err = validate(model, val_loader)
        print(
            f"== epoch {epoch} val IoU {miou:.3f} cls acc {acc:.3f} |err| cx {err[0]:.3f} cy {err[1]:.3f} "
            f"w {err[2]:.3f} h {err[3]:.3f}",
            flush=True,
        )


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--n-train", type=int, default=1600)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--epochs", type=int, default=8)
    p.add_argument("--lr", type=float, default=3e-3)
    p.add_argument("--box-weight", type=float, default=5.0)
    p.add_argument("--seed", type=int, default=0)
    main(p.parse_args())
