# expect: sick
# symptom: depth loss falls nicely for more than a hundred steps, then is nan for ever from one batch on
# axis: data
# cause: a few depth scans have holes stored as depth 0 (missing returns); log(0) = -inf in the scale-invariant log loss, so the loss becomes NaN at the first batch that holds such a scan; invalid pixels are not masked
# says: log ?\(?(of )?(0|zero)|zero depth|depth.{0,30}(0|zero)|invalid pixel|missing (return|pixel|depth|value)|holes?\b|valid mask|mask.{0,30}invalid|(bad|corrupt|degenerate|zero|non-?positive).{0,20}(sample|scan|target|label|batch)|(target|label)s?.{0,30}(zero|\b0\b|-?inf)
# onset_step: 141
# fix: compute the loss over valid pixels only (depth > 0)
# mended: the loss uses only pixels with depth > 0
import os
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)


@dataclass
class Config:
    n_train: int = 1600
    n_val: int = 64
    size: int = 32
    batch: int = 8
    epochs: int = 2
    lr: float = 1e-3
    width: int = 16
    dropouts: int = 2
    seed: int = 43


class RoomScans(Dataset):
    """RGB + range scans of simple rooms: sloped floor, a back wall and a few boxes."""

    def __init__(self, n, cfg, seed, dropouts=0):
        g = torch.Generator().manual_seed(seed)
        s = cfg.size
        yy, xx = torch.meshgrid(torch.linspace(0, 1, s), torch.linspace(0, 1, s), indexing="ij")
        self.rgb, self.depth = torch.empty(n, 3, s, s), torch.empty(n, 1, s, s)
        for i in range(n):
            r = torch.rand(16, generator=g)
            d = 3 + 5 * r[0] - (1.5 + r[1]) * (yy - 0.4).clamp(min=0) * 3 + 0.5 * r[2] * xx
            alb = 0.5 + 0.2 * torch.sin(12 * r[3] * xx + 9 * r[4] * yy)
            for b in range(2):
                cx, cy, w, h, z = r[5 + 5 * b : 10 + 5 * b]
                inside = ((xx - cx).abs() < 0.1 + 0.15 * w) & ((yy - cy).abs() < 0.1 + 0.15 * h)
                d = torch.where(inside, torch.minimum(d, 1.0 + 2 * z), d)
                alb = torch.where(inside, 0.3 + 0.6 * z, alb)
            d = d.clamp(min=0.8)
            fog = torch.exp(-d / 4)
            img = torch.stack([alb * fog + 0.7 * (1 - fog), alb * fog + 0.8 * (1 - fog), alb * fog + (1 - fog)])
            self.rgb[i] = img + 0.03 * torch.randn(img.shape, generator=g)
            self.depth[i, 0] = d
        for i in torch.randint(0, n, (dropouts,), generator=g).tolist():
            y0, x0 = torch.randint(0, s - 6, (2,), generator=g).tolist()
            self.depth[i, 0, y0 : y0 + 6, x0 : x0 + 6] = 0.0

    def __len__(self):
        return len(self.rgb)

    def __getitem__(self, i):
        return self.rgb[i], self.depth[i]


class Conv(nn.Sequential):
    def __init__(self, a, b):
        super().__init__(
            nn.Conv2d(a, b, 3, padding=1),
            nn.GroupNorm(4, b),
            nn.GELU(),
            nn.Conv2d(b, b, 3, padding=1),
            nn.GroupNorm(4, b),
            nn.GELU(),
        )


class DepthUNet(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.e1, self.e2, self.mid = Conv(3, w), Conv(w, 2 * w), Conv(2 * w, 4 * w)
        self.d2, self.d1 = Conv(6 * w, 2 * w), Conv(3 * w, w)
        self.out = nn.Conv2d(w, 1, 1)

    def forward(self, x):
        a = self.e1(x)
        b = self.e2(F.max_pool2d(a, 2))
        c = self.mid(F.max_pool2d(b, 2))
        b = self.d2(torch.cat([F.interpolate(c, scale_factor=2), b], 1))
        a = self.d1(torch.cat([F.interpolate(b, scale_factor=2), a], 1))
        return F.softplus(self.out(a)) + 1e-3


class SiLogLoss(nn.Module):
    def __init__(self, lambd=0.5):
        super().__init__()
        self.lambd = lambd

    def forward(self, pred, gt):
        if MENDED:
            keep = gt > 0
            pred, gt = pred[keep], gt[keep]
        diff = torch.log(pred) - torch.log(gt)
        return torch.sqrt(diff.pow(2).mean() - self.lambd * diff.mean().pow(2))


@torch.no_grad()
def validate(model, loader):
    model.eval()
    err = [((model(x) - y).abs() / y).mean().item() for x, y in loader]
    model.train()
    return sum(err) / len(err)


def main():
    cfg = Config()
    torch.manual_seed(cfg.seed)
    train = DataLoader(RoomScans(cfg.n_train, cfg, 1, cfg.dropouts), cfg.batch, shuffle=True, drop_last=True)
    val = DataLoader(RoomScans(cfg.n_val, cfg, 2), 32)
    model, criterion = DepthUNet(cfg.width), SiLogLoss()
    opt = torch.optim.AdamW(model.parameters(), lr=cfg.lr)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, cfg.lr, total_steps=cfg.epochs * len(train))
    step = 0
    for epoch in range(cfg.epochs):
        for rgb, depth in train:
            loss = criterion(model(rgb), depth)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            if step % 10 == 0:
                print(f"epoch {epoch} step {step} silog {loss.item():.4f}", flush=True)
            step += 1
        print(f"epoch {epoch} val abs_rel {validate(model, val):.4f}", flush=True)


if __name__ == "__main__":
    main()
