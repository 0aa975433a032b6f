# expect: sick
# symptom: the loss falls for some steps, then swings ever more wildly, goes through huge values and ends as nan
# axis: harness
# cause: gradients are zeroed only once per epoch instead of after every optimizer step, so with gradient accumulation each step applies the sum of all gradients since the epoch began
# says: (zero_?grad|(gradients?|\.?grad\b|grads).{0,80}(not|never|only once|isn.t|aren.t|without|once per epoch|at the start of).{0,40}(zero|clear|reset)|(zero|clear|reset)\w*.{0,30}(gradients?|grads).{0,60}(only|once|per epoch|never)|stale gradients?|(gradients?|grads).{0,40}(accumulat|pile|sum|build)\w*.{0,60}(across (steps|updates|optimi)|(whole|entire) epoch|since|previous (steps?|updates?)|forever))
# onset_step: 2
# fix: call optimizer.zero_grad() right after every optimizer.step()
# mended: yes
"""2x super-resolution of procedural textures with a small residual conv net."""

import os
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import Dataset, DataLoader

torch.set_num_threads(1)
torch.manual_seed(2024)

CFG = dict(patch=24, micro_batch=4, accum=4, epochs=4, lr=0.02, momentum=0.9, width=24, patches=1200)


class Textures(Dataset):
    """Sums of random gratings and soft discs; returns (low-res, high-res) pairs."""

    def __init__(self, n, size, seed):
        g = torch.Generator().manual_seed(seed)
        yy, xx = torch.meshgrid(torch.linspace(-1, 1, size), torch.linspace(-1, 1, size), indexing="ij")
        imgs = torch.zeros(n, 1, size, size)
        for i in range(n):
            r = torch.rand(4, 4, generator=g)
            img = torch.zeros(size, size)
            for a, fx, ph, amp in r[:3]:
                th = a * 3.1416
                f = 4 + 14 * fx
                img += (0.3 + amp) * torch.sin(f * (xx * th.cos() + yy * th.sin()) + 6.28 * ph)
            cx, cy, rad, s = r[3]
            d = ((xx - 2 * cx + 1) ** 2 + (yy - 2 * cy + 1) ** 2).sqrt()
            img += 2.5 * (s - 0.5) * torch.sigmoid((0.3 + 0.4 * rad - d) * 30)
            imgs[i, 0] = img
        self.hi = imgs
        self.lo = F.avg_pool2d(imgs, 2)

    def __len__(self):
        return len(self.hi)

    def __getitem__(self, i):
        return self.lo[i], self.hi[i]


class ResBlock(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.a = nn.Conv2d(w, w, 3, padding=1)
        self.b = nn.Conv2d(w, w, 3, padding=1)

    def forward(self, x):
        return x + self.b(F.relu(self.a(x)))


class Upscaler(nn.Module):
    def __init__(self, w, blocks=3):
        super().__init__()
        self.stem = nn.Conv2d(1, w, 3, padding=1)
        self.body = nn.Sequential(*[ResBlock(w) for _ in range(blocks)])
        self.tail = nn.Sequential(nn.Conv2d(w, 4, 3, padding=1), nn.PixelShuffle(2))

    def forward(self, lo):
        base = F.interpolate(lo, scale_factor=2, mode="bilinear", align_corners=False)
        return base + self.tail(self.body(self.stem(lo)))


def psnr(model, ds):
    with torch.no_grad():
        mse = F.mse_loss(model(ds.lo), ds.hi).item()
    span = (ds.hi.max() - ds.hi.min()).item()
    return 10 * torch.log10(torch.tensor(span**2 / mse)).item()


train_ds = Textures(CFG["patches"], CFG["patch"], seed=1)
val_ds = Textures(80, CFG["patch"], seed=2)
loader = DataLoader(train_ds, batch_size=CFG["micro_batch"], shuffle=True, drop_last=True)

net = Upscaler(CFG["width"])
optimizer = torch.optim.SGD(net.parameters(), lr=CFG["lr"], momentum=CFG["momentum"])
print(f"{sum(p.numel() for p in net.parameters())} parameters, bilinear baseline + residual")
print(f"before training: PSNR {psnr(net, val_ds):.2f} dB")

updates, shown, count = 0, 0.0, 0
for epoch in range(CFG["epochs"]):
    net.train()
    optimizer.zero_grad()
    for i, (lo, hi) in enumerate(loader):
        loss = F.mse_loss(net(lo), hi)
        (loss / CFG["accum"]).backward()
        shown += loss.item()
        count += 1
        if (i + 1) % CFG["accum"] == 0:
            optimizer.step()
            if os.environ.get("MENDED") == "1":
                optimizer.zero_grad()
            updates += 1
            if updates % 10 == 0:
                print(f"epoch {epoch} update {updates:4d} mse {shown / count:.5f}", flush=True)
                shown, count = 0.0, 0
    net.eval()
    print(f"epoch {epoch} done: PSNR {psnr(net, val_ds):.2f} dB", flush=True)
