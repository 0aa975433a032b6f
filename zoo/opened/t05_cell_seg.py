# expect: sick
# symptom: the loss falls for about half an epoch, then stays exactly on one level for the rest of the run; the printed lr is 0
# axis: optimizer
# cause: PolynomialLR gets the number of epochs as total_iters but scheduler.step() is called after each batch, so the learning rate is zero after 12 batches of the first epoch
# says: (schedul|learning.?rate|\blr\b|polynomial|total_iters|decay).{0,200}(per.?(batch|step|iteration)|each (batch|step)|every (batch|step)|epochs?|zero|too (early|soon|fast|short)|units?|iterations?)
# onset_step: 12
# fix: total_iters = epochs * len(loader), or step the scheduler once an epoch
# mended: total_iters is epochs times batches
"""Segmentation of round cells with a little U-shaped net."""

import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(0)
MENDED = os.environ.get("MENDED") == "1"
EPOCHS, BATCH, SIZE = 12, 16, 32


def draw(n, seed):
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[:SIZE, :SIZE]
    img = rng.normal(0, 0.35, (n, SIZE, SIZE))
    mask = np.zeros((n, SIZE, SIZE))
    for k in range(n):
        img[k] += rng.uniform(-0.3, 0.3) + 0.02 * rng.normal() * (xx - SIZE / 2)
        for _ in range(rng.integers(1, 5)):
            cy, cx, r = rng.uniform(3, SIZE - 3), rng.uniform(3, SIZE - 3), rng.uniform(2.5, 6)
            d2 = (yy - cy) ** 2 + (xx - cx) ** 2
            mask[k][d2 < r * r] = 1
            img[k] += rng.uniform(0.5, 1.0) * np.exp(-d2 / (r * r))
    return torch.tensor(img, dtype=torch.float32)[:, None], torch.tensor(mask, dtype=torch.float32)[:, None]


def block(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))


class LittleUNet(nn.Module):
    def __init__(self, c=12):
        super().__init__()
        self.d1, self.d2, self.mid = block(1, c), block(c, 2 * c), block(2 * c, 2 * c)
        self.u2, self.u1 = block(4 * c, c), block(2 * c, c)
        self.head = nn.Conv2d(c, 1, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(F.max_pool2d(a, 2))
        m = self.mid(F.max_pool2d(b, 2))
        y = self.u2(torch.cat([F.interpolate(m, scale_factor=2), b], 1))
        y = self.u1(torch.cat([F.interpolate(y, scale_factor=2), a], 1))
        return self.head(y)


def dice(logits, target):
    p = (logits > 0).float()
    return (2 * (p * target).sum() + 1) / (p.sum() + target.sum() + 1)


train_loader = DataLoader(TensorDataset(*draw(400, 1)), batch_size=BATCH, shuffle=True)
val_x, val_y = draw(100, 2)

model = LittleUNet()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
total = EPOCHS * len(train_loader) if MENDED else EPOCHS
scheduler = torch.optim.lr_scheduler.PolynomialLR(optimizer, total_iters=total, power=0.9)

for epoch in range(EPOCHS):
    model.train()
    for i, (x, y) in enumerate(train_loader):
        loss = F.binary_cross_entropy_with_logits(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        if i % 12 == 0:
            print(f"[{epoch:2d}/{EPOCHS}] batch {i:2d} loss {loss.item():.4f} lr {optimizer.param_groups[0]['lr']:.5f}")
    model.eval()
    with torch.no_grad():
        out = model(val_x)
        print(
            f"  val loss {F.binary_cross_entropy_with_logits(out, val_y).item():.4f} dice {dice(out, val_y).item():.4f}"
        )
