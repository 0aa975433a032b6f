# expect: sick
# symptom: the detector trains well for over a hundred steps, then the loss is inf and from the next step on NaN for ever
# axis: data
# cause: random crop clips boxes to the window without dropping those that fall outside; a box of zero width or height gives log(0) = -inf as the size target, so loss Inf and gradients NaN
# says: (degenerate|zero[- ]?(width|height|area|size|sized)|empty|invalid|collapsed|out(side)?[- ]of[- ](the )?(crop|window|image|frame)|outside).{0,80}(box|bbox|target|ground)|(box|bbox|bounding).{0,120}(degenerate|zero|empty|outside|invalid|no area)|log\(? ?(of )?(0|zero)|log.{0,40}(width|height|size|w/|wh|box)|(width|height|box).{0,40}log
# onset_step: 110
# fix: after the crop keep only boxes with a positive (e.g. >= 2 px) visible width and height
# mended: keeps only boxes whose visible width and height are at least 2 pixels after the crop
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(3)
rng = np.random.default_rng(3)

CANVAS, SIZE, STRIDE, NCLS = 64, 48, 8, 3
SPREAD = 6.5
GRID = SIZE // STRIDE
MIN_VISIBLE = 2.0 if MENDED else None


def make_scene():
    img = rng.normal(0, 0.15, (3, CANVAS, CANVAS)).astype(np.float32)
    boxes, labels = [], []
    for _ in range(rng.integers(1, 4)):
        w, h = rng.integers(8, 24, 2)
        cx, cy = np.clip(rng.normal(CANVAS / 2, SPREAD, 2), 6, CANVAS - 6)
        x1, y1 = int(max(cx - w / 2, 0)), int(max(cy - h / 2, 0))
        x2, y2 = int(min(cx + w / 2, CANVAS)), int(min(cy + h / 2, CANVAS))
        c = int(rng.integers(NCLS))
        patch = img[:, y1:y2, x1:x2]
        patch[c] += 1.0
        if c == 2:
            patch[:, ::2] += 0.5
        boxes.append([x1, y1, x2, y2])
        labels.append(c)
    return img, np.array(boxes, np.float32), np.array(labels)


class Scenes:
    def __init__(self, n):
        self.items = [make_scene() for _ in range(n)]

    def random_crop(self, img, boxes, labels):
        ox, oy = rng.integers(0, CANVAS - SIZE + 1, 2)
        img = img[:, oy : oy + SIZE, ox : ox + SIZE]
        boxes = boxes - np.array([ox, oy, ox, oy], np.float32)
        boxes = boxes.clip(0, SIZE)
        if MIN_VISIBLE is not None:
            wh = boxes[:, 2:] - boxes[:, :2]
            keep = (wh >= MIN_VISIBLE).all(1)
            boxes, labels = boxes[keep], labels[keep]
        return img, boxes, labels

    def batch(self, idx):
        imgs, targets = [], []
        for i in idx:
            img, b, l = self.random_crop(*self.items[i])
            imgs.append(img.copy())
            targets.append((torch.from_numpy(b), torch.from_numpy(l)))
        return torch.from_numpy(np.stack(imgs)), targets


def encode(targets):
    n = len(targets)
    obj = torch.zeros(n, GRID, GRID)
    reg = torch.zeros(n, 4, GRID, GRID)
    cls = torch.zeros(n, GRID, GRID, dtype=torch.long)
    for b, (boxes, labels) in enumerate(targets):
        for box, lab in zip(boxes, labels):
            x1, y1, x2, y2 = box.tolist()
            cx, cy, w, h = (x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1
            gx, gy = min(int(cx / STRIDE), GRID - 1), min(int(cy / STRIDE), GRID - 1)
            obj[b, gy, gx] = 1.0
            wh = torch.log(torch.tensor([w, h]) / 16.0)
            reg[b, :, gy, gx] = torch.stack(
                [torch.tensor(cx / STRIDE - gx), torch.tensor(cy / STRIDE - gy), wh[0], wh[1]]
            )
            cls[b, gy, gx] = lab
    return obj, reg, cls


class Detector(nn.Module):
    def __init__(self, c=16):
        super().__init__()

        def block(i, o, s):
            return nn.Sequential(nn.Conv2d(i, o, 3, s, 1, bias=False), nn.GroupNorm(4, o), nn.SiLU())

        self.body = nn.Sequential(
            block(3, c, 2),
            block(c, c, 1),
            block(c, 2 * c, 2),
            block(2 * c, 2 * c, 1),
            block(2 * c, 3 * c, 2),
            block(3 * c, 3 * c, 1),
        )
        self.obj = nn.Conv2d(3 * c, 1, 1)
        self.reg = nn.Conv2d(3 * c, 4, 1)
        self.cls = nn.Conv2d(3 * c, NCLS, 1)
        nn.init.constant_(self.obj.bias, -3.0)

    def forward(self, x):
        f = self.body(x)
        return self.obj(f).squeeze(1), self.reg(f), self.cls(f)


def detection_loss(out, targets):
    po, pr, pc = out
    obj, reg, cls = encode(targets)
    pos = obj > 0
    npos = pos.sum().clamp(min=1)
    l_obj = F.binary_cross_entropy_with_logits(po, obj, reduction="sum") / npos
    l_reg = ((pr - reg) ** 2).permute(0, 2, 3, 1)[pos].sum() / npos
    l_cls = F.cross_entropy(pc.permute(0, 2, 3, 1)[pos], cls[pos], reduction="sum") / npos
    return l_obj + l_reg + l_cls, (l_obj.item(), l_reg.item(), l_cls.item())


def main():
    data = Scenes(1200)
    net = Detector()
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=1e-3)
    steps, bs = 320, 16
    t0 = time.time()
    for step in range(steps):
        for g in opt.param_groups:
            g["lr"] = 1e-3 * min(1.0, (step + 1) / 30)
        x, targets = data.batch(rng.integers(0, len(data.items), bs))
        loss, parts = detection_loss(net(x), targets)
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 10.0)
        opt.step()
        if step % 10 == 0 or step == steps - 1:
            print(
                f"step {step} loss {loss.item():.4f} obj {parts[0]:.3f} box {parts[1]:.3f} cls {parts[2]:.3f} ({time.time() - t0:.0f}s)",
                flush=True,
            )


if __name__ == "__main__":
    main()
