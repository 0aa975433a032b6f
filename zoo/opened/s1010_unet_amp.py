# expect: sick
# symptom: with mixed precision the loss goes down at a crawl; no nan, no warnings, the gradient scale is stable
# axis: precision
# cause: clip_grad_norm_ is called on the gradients while they are still multiplied by the loss scale (no scaler.unscale_ before it), so every gradient is clipped to 1 and then divided by 65536, the effective update is tiny
# says: unscale|(clip\w*).{0,120}(scal(ed|er)|before|loss[- ]scale|65536|order)|(scal(ed|er|e)).{0,100}clip
# onset_step: 1
# fix: scaler.unscale_(optimizer) before clip_grad_norm_
# mended: scaler.unscale_(opt) is called before the clipping
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(17)
rng = np.random.default_rng(17)

RES = 24


def scenes(n):
    """bright ellipses on a textured ground, the mask is the union of the ellipses"""
    yy, xx = np.mgrid[0:RES, 0:RES]
    ims, masks = [], []
    for _ in range(n):
        m = np.zeros((RES, RES), bool)
        for _ in range(rng.integers(1, 4)):
            cy, cx = rng.uniform(4, RES - 4, 2)
            a, b = rng.uniform(2, 6, 2)
            m |= ((yy - cy) / a) ** 2 + ((xx - cx) / b) ** 2 < 1
        ground = 0.4 * np.sin(0.7 * xx + rng.uniform(0, 6)) + 0.3 * np.sin(0.5 * yy + rng.uniform(0, 6))
        ims.append(ground + 0.9 * m + rng.normal(0, 0.35, m.shape))
        masks.append(m)
    return (
        torch.tensor(np.stack(ims), dtype=torch.float32).unsqueeze(1),
        torch.tensor(np.stack(masks), dtype=torch.float32).unsqueeze(1),
    )


def double_conv(a, b):
    return nn.Sequential(
        nn.Conv2d(a, b, 3, padding=1),
        nn.GroupNorm(4, b),
        nn.ReLU(),
        nn.Conv2d(b, b, 3, padding=1),
        nn.GroupNorm(4, b),
        nn.ReLU(),
    )


class UNet(nn.Module):
    def __init__(self, w=12):
        super().__init__()
        self.d1, self.d2 = double_conv(1, w), double_conv(w, 2 * w)
        self.mid = double_conv(2 * w, 2 * w)
        self.u2, self.u1 = double_conv(4 * w, w), double_conv(2 * w, w)
        self.out = nn.Conv2d(w, 1, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(F.max_pool2d(a, 2))
        m = self.mid(F.max_pool2d(b, 2))
        u = self.u2(torch.cat([F.interpolate(m, scale_factor=2), b], 1))
        u = self.u1(torch.cat([F.interpolate(u, scale_factor=2), a], 1))
        return self.out(u)


def criterion(logits, mask):
    logits = logits.float()
    bce = F.binary_cross_entropy_with_logits(logits, mask)
    p = logits.sigmoid()
    dice = 1 - (2 * (p * mask).sum((1, 2, 3)) + 1) / (p.sum((1, 2, 3)) + mask.sum((1, 2, 3)) + 1)
    return bce + dice.mean()


class Trainer:
    def __init__(self, model, data, val, lr=0.1, steps=160, bs=12):
        self.model, self.data, self.val, self.steps, self.bs = model, data, val, steps, bs
        self.opt = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, nesterov=True, weight_decay=1e-4)
        self.sched = torch.optim.lr_scheduler.PolynomialLR(self.opt, steps, power=0.9)
        self.scaler = torch.amp.GradScaler("cpu")

    def train_step(self):
        i = torch.randint(0, len(self.data[0]), (self.bs,))
        with torch.autocast("cpu", dtype=torch.float16):
            logits = self.model(self.data[0][i])
        loss = criterion(logits, self.data[1][i])
        self.opt.zero_grad(set_to_none=True)
        self.scaler.scale(loss).backward()
        if MENDED:
            self.scaler.unscale_(self.opt)
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.scaler.step(self.opt)
        self.scaler.update()
        self.sched.step()
        return loss.item()

    @torch.no_grad()
    def iou(self):
        with torch.autocast("cpu", dtype=torch.float16):
            p = self.model(self.val[0]) > 0
        m = self.val[1] > 0.5
        return ((p & m).sum() / (p | m).sum()).item()

    def fit(self):
        t0 = time.time()
        for step in range(1, self.steps + 1):
            loss = self.train_step()
            if step % 10 == 0 or step == 1:
                print(
                    f"step {step:4d} loss {loss:.4f} scale {self.scaler.get_scale():.0f} t {time.time() - t0:.1f}s",
                    flush=True,
                )
            if step % 40 == 0:
                print(f"  val IoU {self.iou():.3f}")


Trainer(UNet(), scenes(800), scenes(64)).fit()
