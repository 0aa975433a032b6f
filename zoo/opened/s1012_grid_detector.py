# expect: sick
# symptom: the detection loss falls well but every 20 to 50 steps jumps for one step to 4 or 6 times its level, the box size part only
# axis: data
# cause: the random crop clips boxes to the crop window and keeps the ones wholly outside it, which become degenerate boxes of zero width or height; their log size target is about -16
# says: degenerate|(zero|0|no|empty|tiny|vanishing)[- ]?(width|height|area|size|extent)|empty box|(invalid|bad|sliver|clipped|cropped|outlier|corrupt|extreme)[^.\n]{0,40}(box|target|label|sample|example)|box[^.\n]{0,60}(zero|outside|clip|crop|empty)|log[^.\n]{0,30}(of (zero|0)|width|height|size)|(target|label)[^.\n]{0,40}(outlier|extreme|out of range)
# onset_step: 48
# fix: drop boxes whose clipped side is under a few pixels before the targets are encoded
# mended: the crop keeps only boxes with both sides of 3 pixels or more (instead of 0)
import os
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(12)
rng = np.random.default_rng(12)

CANVAS, WINDOW, STRIDE, ANCHOR = 56, 48, 8, 14.0
GRID = WINDOW // STRIDE
N_CLASSES = 3
MIN_SIDE = 3.0 if MENDED else 0.0
BATCH, STEPS = 16, 400


def make_scene():
    img = rng.normal(0, 0.25, (3, CANVAS, CANVAS)).astype(np.float32)
    boxes, classes = [], []
    for _ in range(rng.integers(1, 4)):
        w, h = rng.uniform(11, 24, 2)
        if rng.random() < 0.035:
            w, h = rng.uniform(5, 7, 2)
        x1, y1 = rng.uniform(0, CANVAS - w), rng.uniform(0, CANVAS - h)
        c = rng.integers(N_CLASSES)
        xs, ys = slice(int(x1), int(x1 + w)), slice(int(y1), int(y1 + h))
        img[c, ys, xs] += 1.5
        img[(c + 1) % 3, ys, xs] -= 0.7
        boxes.append([x1, y1, x1 + w, y1 + h])
        classes.append(c)
    return img, np.array(boxes, np.float32), np.array(classes)


class RandomCrop:
    def __init__(self, size, min_side):
        self.size, self.min_side = size, min_side

    def __call__(self, img, boxes, classes):
        x0, y0 = rng.integers(0, CANVAS - self.size + 1, 2)
        img = img[:, y0 : y0 + self.size, x0 : x0 + self.size]
        boxes = boxes - np.array([x0, y0, x0, y0], np.float32)
        boxes = boxes.clip(0, self.size)
        side = boxes[:, 2:] - boxes[:, :2]
        keep = (side >= self.min_side).all(1)
        return img, boxes[keep], classes[keep]


def encode(boxes, classes):
    obj = np.zeros((GRID, GRID), np.float32)
    cls = np.zeros((GRID, GRID), np.int64)
    reg = np.zeros((4, GRID, GRID), np.float32)
    for (x1, y1, x2, y2), c in zip(boxes, classes):
        cx, cy = (x1 + x2) / 2 / STRIDE, (y1 + y2) / 2 / STRIDE
        i, j = min(int(cy), GRID - 1), min(int(cx), GRID - 1)
        obj[i, j], cls[i, j] = 1.0, c
        reg[:, i, j] = cx - j, cy - i, np.log((x2 - x1) / ANCHOR + 1e-6), np.log((y2 - y1) / ANCHOR + 1e-6)
    return obj, cls, reg


class Scenes:
    def __init__(self, n):
        self.items = [make_scene() for _ in range(n)]
        self.crop = RandomCrop(WINDOW, MIN_SIDE)

    def batch(self, size):
        picked = rng.integers(0, len(self.items), size)
        imgs, targets = [], []
        for i in picked:
            img, boxes, classes = self.crop(*self.items[i])
            imgs.append(img)
            targets.append(encode(boxes, classes))
        obj, cls, reg = (torch.as_tensor(np.stack(t)) for t in zip(*targets))
        return torch.as_tensor(np.stack(imgs)), obj, cls, reg


class Detector(nn.Module):
    def __init__(self):
        super().__init__()

        def block(i, o):
            return nn.Sequential(
                nn.Conv2d(i, o, 3, 2, 1),
                nn.BatchNorm2d(o),
                nn.ReLU(),
                nn.Conv2d(o, o, 3, 1, 1),
                nn.BatchNorm2d(o),
                nn.ReLU(),
            )

        self.body = nn.Sequential(block(3, 16), block(16, 32), block(32, 64), nn.Conv2d(64, 64, 3, 1, 1), nn.ReLU())
        self.out = nn.Conv2d(64, 1 + N_CLASSES + 4, 1)

    def forward(self, x):
        y = self.out(self.body(x))
        return y[:, 0], y[:, 1 : 1 + N_CLASSES], y[:, 1 + N_CLASSES :]


def detection_loss(pred, obj, cls, reg):
    p_obj, p_cls, p_reg = pred
    on = obj > 0
    n = on.sum().clamp(min=1)
    l_obj = F.binary_cross_entropy_with_logits(p_obj, obj, reduction="sum") / n
    l_cls = (F.cross_entropy(p_cls, cls, reduction="none") * obj).sum() / n
    err = (p_reg - reg) ** 2 * obj[:, None]
    l_xy, l_wh = err[:, :2].sum() / n, err[:, 2:].sum() / n
    return l_obj + l_cls + l_xy + l_wh, (l_obj, l_cls, l_xy, l_wh)


def main():
    data = Scenes(600)
    model = Detector()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step in range(STEPS):
        img, obj, cls, reg = data.batch(BATCH)
        loss, parts = detection_loss(model(img), obj, cls, reg)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 10 == 0 or loss.item() > 4:
            print(
                f"step {step:4d}  loss {loss.item():7.3f}  obj/cls/xy/wh " + " ".join(f"{p.item():.3f}" for p in parts)
            )
    model.eval()
    with torch.no_grad():
        errs = []
        for _ in range(20):
            img, obj, _, reg = data.batch(BATCH)
            good = (obj > 0) & (reg[:, 2:] > -2).all(1)
            errs.append((model(img)[2][:, 2:] - reg[:, 2:]).abs().mean(1)[good])
    print(f"mean abs log-size error: {torch.cat(errs).mean():.3f}")


if __name__ == "__main__":
    main()
