# expect: sick
# symptom: the detector's loss falls and flattens well above that of a sound run; recall at IoU 0.5 stays low, boxes are imprecise
# axis: model
# cause: the per-level prediction heads are kept in a plain Python list, so they are not registered: the optimizer never gets them and they stay at their random initial weights
# says: (module.?list|plain|python)[^.]{0,80}list|not registered|unregistered|regist\w*|(head|layer|param\w*|weight)s?[^.]{0,120}(never (train\w*|updat\w*|chang\w*|mov\w*)|not (train\w*|updat\w*|in the optimi[sz]er|mov\w*|given|passed)|missing from|frozen|random|stay)|optimi[sz]er[^.]{0,100}(lack|miss|not (get|see|hold|have|contain|cover)|never (get|see)|does ?n.t)
# onset_step: 0
# fix: self.heads = nn.ModuleList(...)
# mended: the heads are put into an nn.ModuleList
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
SIZE, STRIDES, CLASSES = 48, (8, 16), 3


def draw_scene(rng):
    img = rng.normal(0, 0.15, (SIZE, SIZE)).astype(np.float32)
    yy, xx = np.mgrid[0:SIZE, 0:SIZE] + 0.5
    boxes, labels = [], []
    for _ in range(rng.integers(1, 4)):
        w, h = rng.uniform(6, 20, 2)
        x, y = rng.uniform(0, SIZE - w), rng.uniform(0, SIZE - h)
        if any(x < b[2] and b[0] < x + w and y < b[3] and b[1] < y + h for b in boxes):
            continue
        c = rng.integers(CLASSES)
        inside = (xx > x) & (xx < x + w) & (yy > y) & (yy < y + h)
        u, v = (xx - x - w / 2) / (w / 2), (yy - y - h / 2) / (h / 2)
        if c == 1:
            inside &= u**2 + v**2 < 1
        if c == 2:
            inside &= np.maximum(abs(u), abs(v)) > 0.6
        img[inside] += rng.uniform(0.7, 1.2)
        boxes.append((x, y, x + w, y + h))
        labels.append(c)
    return img, boxes, labels


def encode(boxes, labels):
    """Per level: class map (background = CLASSES) and ltrb distances in strides at the centre cell."""
    out = []
    for lvl, s in enumerate(STRIDES):
        n = SIZE // s
        cls = np.full((n, n), CLASSES, dtype=np.int64)
        reg = np.zeros((4, n, n), dtype=np.float32)
        for (x0, y0, x1, y1), c in zip(boxes, labels):
            if (max(x1 - x0, y1 - y0) > 13) != (lvl == 1):
                continue
            j, i = int((x0 + x1) / 2 // s), int((y0 + y1) / 2 // s)
            cx, cy = (j + 0.5) * s, (i + 0.5) * s
            cls[i, j] = c
            reg[:, i, j] = np.array([cx - x0, cy - y0, x1 - cx, y1 - cy]) / s
        out.append((cls, reg))
    return out


def make_set(n, seed):
    rng = np.random.default_rng(seed)
    scenes = [draw_scene(rng) for _ in range(n)]
    imgs = torch.tensor(np.stack([s[0] for s in scenes])).unsqueeze(1)
    enc = [encode(s[1], s[2]) for s in scenes]
    tgt = [
        (torch.tensor(np.stack([e[l][0] for e in enc])), torch.tensor(np.stack([e[l][1] for e in enc])))
        for l in range(len(STRIDES))
    ]
    return imgs, tgt


def stage(i, o):
    return nn.Sequential(
        nn.Conv2d(i, o, 3, 2, 1), nn.BatchNorm2d(o), nn.ReLU(), nn.Conv2d(o, o, 3, 1, 1), nn.BatchNorm2d(o), nn.ReLU()
    )


class Head(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.tower = nn.Sequential(nn.Conv2d(c, c, 1), nn.ReLU())
        self.cls, self.reg = nn.Conv2d(c, CLASSES + 1, 1), nn.Conv2d(c, 4, 1)

    def forward(self, x):
        h = self.tower(x)
        return self.cls(h), F.softplus(self.reg(h))


class Detector(nn.Module):
    def __init__(self, c=16):
        super().__init__()
        self.stem = nn.Sequential(stage(1, c), stage(c, c), stage(c, 2 * c))
        self.down = stage(2 * c, 2 * c)
        self.heads = [Head(2 * c) for _ in STRIDES]
        if MENDED:
            self.heads = nn.ModuleList(self.heads)

    def forward(self, x):
        p3 = self.stem(x)
        return [head(f) for head, f in zip(self.heads, (p3, self.down(p3)))]


def detection_loss(preds, targets):
    weight = torch.tensor([1.0] * CLASSES + [0.25])
    cls_loss = box_loss = 0.0
    for (cls, reg), (tc, tr) in zip(preds, targets):
        cls_loss = cls_loss + F.cross_entropy(cls, tc, weight=weight)
        pos = (tc < CLASSES).unsqueeze(1).float()
        box_loss = box_loss + (F.smooth_l1_loss(reg, tr, reduction="none") * pos).sum() / pos.sum().clamp(min=1)
    return cls_loss + box_loss


@torch.no_grad()
def recall50(model, imgs, targets):
    model.eval()
    hit = total = 0
    for (cls, reg), (tc, tr) in zip(model(imgs), targets):
        pos = tc < CLASSES
        p, t = reg.permute(0, 2, 3, 1)[pos], tr.permute(0, 2, 3, 1)[pos]
        inter = (torch.min(p[:, 0], t[:, 0]) + torch.min(p[:, 2], t[:, 2])).clamp(min=0) * (
            torch.min(p[:, 1], t[:, 1]) + torch.min(p[:, 3], t[:, 3])
        ).clamp(min=0)
        area = lambda b: (b[:, 0] + b[:, 2]) * (b[:, 1] + b[:, 3])
        iou = inter / (area(p) + area(t) - inter)
        hit += ((iou > 0.5) & (cls.argmax(1)[pos] == tc[pos])).sum().item()
        total += int(pos.sum())
    model.train()
    return hit / total


def main():
    torch.manual_seed(6)
    imgs, targets = make_set(2400, 1)
    val = make_set(300, 2)
    model = Detector()
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-3)
    steps, batch = 450, 24
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, steps)
    for step in range(steps):
        i = torch.randint(0, len(imgs), (batch,))
        loss = detection_loss(model(imgs[i]), [(c[i], r[i]) for c, r in targets])
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step % 25 == 0:
            print(f"step {step:4d} loss {loss.item():.4f}", flush=True)
        if step % 150 == 149:
            print(f"step {step:4d} recall50 {recall50(model, *val):.3f}", flush=True)


if __name__ == "__main__":
    main()
