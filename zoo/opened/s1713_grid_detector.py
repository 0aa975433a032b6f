# expect: sick
# symptom: loss falls for some steps, then it is NaN at once and for ever
# axis: loss
# cause: square root of the raw, unbounded predicted box width and height: as soon as one predicted size is negative sqrt gives NaN
# says: negative (width|height|size|box|wh\b|predict|dimension)|sqrt|square[- ]root|infinite (gradient|derivative)|gradient.{0,40}(at|of) (zero|0\b)|derivative.{0,40}(zero|0\b)|\beps(ilon)?\b.{0,60}(box|width|wh\b|root)
# onset_step: 23
# fix: sign(x) * sqrt(|x| + eps), or make the size positive (exp, softplus) first
# mended: sign(x) * sqrt(|x| + 1e-4) instead of sqrt(x)
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(21)
rng = np.random.default_rng(21)

S, SIZE, NCLS, BATCH, STEPS = 6, 48, 3, 16, 250


def render(n):
    """images with 1-3 coloured shapes; target grid: obj, x, y, w, h, class"""
    img = rng.normal(0, 0.05, (n, 3, SIZE, SIZE)).astype(np.float32)
    tgt = np.zeros((n, S, S, 6), dtype=np.float32)
    yy, xx = np.mgrid[0:SIZE, 0:SIZE] + 0.5
    for i in range(n):
        for _ in range(rng.integers(1, 4)):
            w, h = rng.uniform(6, 28, 2)
            cx, cy = rng.uniform(w / 2, SIZE - w / 2), rng.uniform(h / 2, SIZE - h / 2)
            c = rng.integers(0, NCLS)
            u, v = np.abs(xx - cx) / (w / 2), np.abs(yy - cy) / (h / 2)
            inside = [(u < 1) & (v < 1), u**2 + v**2 < 1, u + v < 1][c]
            img[i][:, inside] = rng.uniform(0.4, 1.0, 3)[:, None]
            gx, gy = int(cx / SIZE * S), int(cy / SIZE * S)
            tgt[i, gy, gx] = [1, cx / SIZE * S - gx, cy / SIZE * S - gy, w / SIZE, h / SIZE, c]
    return torch.tensor(img), torch.tensor(tgt)


def block(i, o, stride):
    return nn.Sequential(nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o), nn.LeakyReLU(0.1))


class GridDetector(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(block(3, 16, 2), block(16, 32, 2), block(32, 64, 2), block(64, 64, 1))
        self.head = nn.Conv2d(64, 5 + NCLS, 1)
        nn.init.normal_(self.head.weight, std=0.01)
        with torch.no_grad():
            self.head.bias.zero_()
            self.head.bias[3:5] = 0.3

    def forward(self, x):
        p = self.head(self.body(x)).permute(0, 2, 3, 1)
        return p[..., 0], p[..., 1:3].sigmoid(), p[..., 3:5], p[..., 5:]


def root(v):
    return torch.sign(v) * torch.sqrt(v.abs() + 1e-4) if MENDED else torch.sqrt(v)


def detection_loss(pred, tgt):
    obj, xy, wh, cls = pred
    m = tgt[..., 0] > 0
    l_obj = F.binary_cross_entropy_with_logits(obj, tgt[..., 0], pos_weight=torch.tensor(5.0))
    l_xy = F.mse_loss(xy[m], tgt[..., 1:3][m])
    l_wh = F.mse_loss(root(wh[m]), root(tgt[..., 3:5][m]))
    l_cls = F.cross_entropy(cls[m], tgt[..., 5][m].long())
    return 5 * l_xy + 5 * l_wh + l_obj + l_cls, (l_obj, l_xy, l_wh, l_cls)


@torch.no_grad()
def evaluate(model, img, tgt):
    model.eval()
    obj, _, wh, cls = model(img)
    m = tgt[..., 0] > 0
    model.train()
    rec = (obj[m] > 0).float().mean()
    acc = (cls[m].argmax(-1) == tgt[..., 5][m].long()).float().mean()
    return rec.item(), acc.item(), (wh[m] - tgt[..., 3:5][m]).abs().mean().item()


train_img, train_tgt = render(1000)
val_img, val_tgt = render(150)
model = GridDetector()
opt = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9, weight_decay=5e-4)
t0 = time.time()
for step in range(STEPS):
    idx = torch.from_numpy(rng.integers(0, len(train_img), BATCH))
    for g in opt.param_groups:
        g["lr"] = 0.03 * min(1.0, (step + 1) / 20)
    loss, parts = detection_loss(model(train_img[idx]), train_tgt[idx])
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 10 == 0:
        print(
            f"step {step:3d} loss {loss.item():.4f} "
            + " ".join(f"{n} {p.item():.3f}" for n, p in zip(("obj", "xy", "wh", "cls"), parts))
        )
    if step % 50 == 49:
        rec, acc, err = evaluate(model, val_img, val_tgt)
        print(f"== step {step} recall {rec:.3f} class acc {acc:.3f} size error {err:.3f} ({time.time() - t0:.1f}s)")
