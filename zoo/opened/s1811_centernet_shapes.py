# expect: sick
# symptom: the detection loss falls nicely, then one step is above 1000 and afterwards it stays at a high constant level, recall 0
# axis: loss
# cause: the focal loss is divided by the number of objects in the batch plus 1e-6; a batch whose images are all empty has no positives, so the loss is multiplied by a million
# says: (num_?pos|n_pos|\bpositives?\b|\bobjects?\b|number of (pos|obj|box|cent)|empty (image|batch|scene|tile)|background.only|\bnorm(ali[sz]er)?\b).{0,200}(\bzero\b|\b0\b|\bnone\b|without|divi[ds]|1e-0?6|clamp|empty|denominator)|(divi[ds]\w*|denominator|1e-0?6).{0,160}(num_?pos|\bpositives?\b|\bobjects?\b|empty (image|batch|scene))
# onset_step: 263
# fix: clamp the number of positives to at least 1 before dividing
# mended: divides by num_pos.clamp(min=1)
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(3)

SIZE, STRIDE, CLASSES = 48, 4, 3
GRID = SIZE // STRIDE
BATCH, STEPS = 4, 600


def draw_scene(rng):
    img = rng.normal(0.35, 0.06, (3, SIZE, SIZE)).astype(np.float32)
    img += rng.uniform(-0.1, 0.1, (3, 1, 1)).astype(np.float32)
    heat = np.zeros((CLASSES, GRID, GRID), np.float32)
    wh = np.zeros((2, GRID, GRID), np.float32)
    mask = np.zeros((GRID, GRID), np.float32)
    yy, xx = np.mgrid[:SIZE, :SIZE]
    gy, gx = np.mgrid[:GRID, :GRID]
    for _ in range(rng.choice([0, 1, 2, 3], p=[0.3, 0.3, 0.25, 0.15])):
        c = rng.integers(CLASSES)
        w, h = rng.uniform(8, 18, 2)
        cx, cy = rng.uniform(9, SIZE - 9, 2)
        dx, dy = np.abs(xx - cx) / (w / 2), np.abs(yy - cy) / (h / 2)
        shape = [np.maximum(dx, dy) < 1, dx**2 + dy**2 < 1, dx + dy < 1][c]
        color = rng.uniform(0.55, 1.0, (3, 1, 1)).astype(np.float32)
        img = np.where(shape[None], color, img)
        ix, iy = int(cx / STRIDE), int(cy / STRIDE)
        blob = np.exp(-((gx - ix) ** 2 + (gy - iy) ** 2) / 2.0)
        heat[c] = np.maximum(heat[c], blob)
        wh[:, iy, ix] = w / SIZE, h / SIZE
        mask[iy, ix] = 1
    return img, heat, wh, mask


def build(n, seed):
    rng = np.random.default_rng(seed)
    scenes = [draw_scene(rng) for _ in range(n)]
    return [torch.from_numpy(np.stack(a).astype(np.float32)) for a in zip(*scenes)]


class CenterNet(nn.Module):
    def __init__(self, w=24):
        super().__init__()

        def block(i, o, s):
            return nn.Sequential(nn.Conv2d(i, o, 3, s, 1, bias=False), nn.GroupNorm(4, o), nn.ReLU())

        self.body = nn.Sequential(
            block(3, w, 2), block(w, w, 1), block(w, 2 * w, 2), block(2 * w, 2 * w, 1), block(2 * w, 2 * w, 1)
        )
        self.heat = nn.Sequential(nn.Conv2d(2 * w, w, 3, 1, 1), nn.ReLU(), nn.Conv2d(w, CLASSES, 1))
        self.size = nn.Sequential(nn.Conv2d(2 * w, w, 3, 1, 1), nn.ReLU(), nn.Conv2d(w, 2, 1))
        nn.init.constant_(self.heat[-1].bias, -2.19)

    def forward(self, x):
        f = self.body(x)
        return self.heat(f), self.size(f)


def criterion(heat_logit, wh_pred, heat, wh, mask):
    p = heat_logit.sigmoid().clamp(1e-4, 1 - 1e-4)
    pos = heat.eq(1).float()
    pos_loss = -(p.log() * (1 - p) ** 2 * pos).sum()
    neg_loss = -((1 - p).log() * p**2 * (1 - heat) ** 4 * (1 - pos)).sum()
    num_pos = mask.sum()
    norm = num_pos.clamp(min=1) if MENDED else num_pos + 1e-6
    heat_loss = (pos_loss + neg_loss) / norm
    size_loss = (F.l1_loss(wh_pred, wh, reduction="none") * mask[:, None]).sum() / norm
    return heat_loss + 2.0 * size_loss, heat_loss, size_loss


@torch.no_grad()
def recall(model, data):
    heat, _ = model(data[0])
    best = heat.flatten(2).max(-1).indices
    target = data[1].flatten(2)
    has = target.max(-1).values.eq(1)
    hit = target.gather(2, best[..., None]).squeeze(-1).eq(1)
    return (hit & has).sum().item() / has.sum().item()


def main():
    train, valid = build(1000, 21), build(200, 22)
    model = CenterNet()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    gen = torch.Generator().manual_seed(7)
    t0 = time.time()
    order, ptr = torch.randperm(1000, generator=gen), 0
    for step in range(STEPS):
        if ptr + BATCH > 1000:
            order, ptr = torch.randperm(1000, generator=gen), 0
        img, heat, wh, mask = [a[order[ptr : ptr + BATCH]] for a in train]
        ptr += BATCH
        hl, sz = model(img)
        loss, l_heat, l_size = criterion(hl, sz, heat, wh, mask)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0 or loss.item() > 20:
            print(
                f"step {step:4d} loss {loss.item():.4f} heat {l_heat.item():.4f} size {l_size.item():.4f} "
                f"({time.time() - t0:.1f}s)"
            )
    vl = np.mean(
        [
            criterion(*model(valid[0][i : i + 50]), *[a[i : i + 50] for a in valid[1:]])[0].item()
            for i in range(0, 200, 50)
        ]
    )
    print(f"valid loss {vl:.4f} center recall {recall(model, valid):.3f}")


if __name__ == "__main__":
    main()
