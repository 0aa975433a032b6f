# expect: healthy
# symptom: the backbone stays in eval mode under no_grad during training, the optimizer holds only neck and head, four micro-batches are summed without division and gradients are cleared after the step: frozen backbone with frozen batch norm, focal loss summed and divided once by all positives
# axis: none
# mended: none
import math
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(18)
rng = np.random.default_rng(18)
SIZE, STRIDE, MICRO, ACC, STEPS, PRE = 48, 4, 6, 4, 160, 120


def cells(n, bright):
    """microscope tiles with round and elongated cells; heat map and size targets on a coarse grid"""
    g = SIZE // STRIDE
    img = rng.normal(0, 0.12, (n, 1, SIZE, SIZE)).astype(np.float32)
    heat, size = np.zeros((n, g, g), np.float32), np.zeros((n, g, g), np.float32)
    yy, xx = np.mgrid[0:SIZE, 0:SIZE]
    count = np.zeros(n, dtype=np.int64)
    for i in range(n):
        for _ in range(rng.integers(0, 5)):
            cx, cy, r, k = *rng.uniform(5, SIZE - 5, 2), rng.uniform(2.5, 6), rng.uniform(1, 1.8)
            img[i, 0] += bright * rng.uniform(0.6, 1.1) * np.exp(-(((xx - cx) / (r * k)) ** 2 + ((yy - cy) / r) ** 2))
            gx, gy = int(cx / STRIDE), int(cy / STRIDE)
            heat[i, gy, gx], size[i, gy, gx] = 1, math.log(r)
        count[i] = heat[i].sum()
    return torch.tensor(img), torch.tensor(heat), torch.tensor(size), torch.tensor(count)


def conv(i, o, s=1):
    return nn.Sequential(nn.Conv2d(i, o, 3, s, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU())


class Detector(nn.Module):
    def __init__(self, backbone):
        super().__init__()
        self.backbone = backbone.requires_grad_(False)
        self.neck = nn.Sequential(
            nn.Conv2d(32, 48, 3, 1, 1),
            nn.GroupNorm(6, 48),
            nn.ReLU(),
            nn.Conv2d(48, 48, 3, 1, 1),
            nn.GroupNorm(6, 48),
            nn.ReLU(),
        )
        self.cls, self.size = nn.Conv2d(48, 1, 1), nn.Conv2d(48, 1, 1)
        nn.init.constant_(self.cls.bias, -math.log(99))

    def train(self, mode=True):
        super().train(mode)
        self.backbone.eval()
        return self

    def forward(self, x):
        with torch.no_grad():
            f = self.backbone(x)
        h = self.neck(f)
        return self.cls(h)[:, 0], self.size(h)[:, 0]


def focal_sum(logit, target, alpha=0.5, gamma=2.0):
    ce = F.binary_cross_entropy_with_logits(logit, target, reduction="none")
    p = torch.sigmoid(logit)
    pt = p * target + (1 - p) * (1 - target)
    return ((alpha * target + (1 - alpha) * (1 - target)) * (1 - pt) ** gamma * ce).sum()


def pretrain():
    """backbone learns to count cells on another stain"""
    body = nn.Sequential(conv(1, 16, 2), conv(16, 32, 2), conv(32, 32))
    head = nn.Linear(32, 5)
    opt = torch.optim.Adam([*body.parameters(), *head.parameters()], lr=3e-3)
    x, _, _, n = cells(1000, 1.0)
    for step in range(PRE):
        k = torch.randint(0, len(x), (32,))
        loss = F.cross_entropy(head(body(x[k]).mean((2, 3))), n[k].clamp(max=4))
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 30 == 0:
            print(f"pretrain step {step:3d} loss {loss.item():.4f}")
    return body


@torch.no_grad()
def f1(model, img, heat):
    model.eval()
    p = torch.sigmoid(model(img)[0])
    model.train()
    peak = F.max_pool2d(p[:, None], 3, 1, 1)[:, 0] == p
    best = 0.0
    for thr in (0.25, 0.35, 0.45):
        det = (peak & (p > thr)).float()
        near = F.max_pool2d(heat[:, None], 3, 1, 1)[:, 0]
        found = F.max_pool2d(det[:, None], 3, 1, 1)[:, 0]
        prec = (det * near).sum() / det.sum().clamp(min=1)
        rec = (heat * found).sum() / heat.sum()
        best = max(best, (2 * prec * rec / (prec + rec + 1e-9)).item())
    return best


t0 = time.time()
model = Detector(pretrain()).train()
params = [p for p in model.parameters() if p.requires_grad]
opt = torch.optim.AdamW(params, lr=2e-3, weight_decay=1e-3)
sched = torch.optim.lr_scheduler.OneCycleLR(opt, 3e-3, total_steps=STEPS)
img, heat, size, _ = cells(1200, 0.9)
vi, vh, _, _ = cells(200, 0.9)
for step in range(STEPS):
    picks = torch.randint(0, len(img), (ACC, MICRO))
    positives = heat[picks].sum().clamp(min=1)
    shown = 0.0
    for k in picks:
        logit, s = model(img[k])
        m = heat[k] > 0
        loss = (focal_sum(logit, heat[k]) + 0.3 * F.smooth_l1_loss(s[m], size[k][m], reduction="sum")) / positives
        loss.backward()
        shown += loss.item()
    opt.step()
    opt.zero_grad()
    sched.step()
    if step % 8 == 0:
        print(f"step {step:4d} loss {shown:.4f} positives {int(positives)}")
    if step % 40 == 39:
        print(f"== step {step} F1 {f1(model, vi, vh):.3f} ({time.time() - t0:.1f}s)")
