# expect: sick
# symptom: the loss goes on falling in a noise that grows, or stays where it is, and held-out rows get worse
# axis: data
# cause: reading a row overwrites the stored one in place, so later epochs train on other data
# says: (overwrit|in.?place|mutat|modif|alias|view|copy|clone).{0,120}|stored.{0,40}(row|sample|data)
# onset_step: 0
# fix: copy the row before it is changed
# mended: the same with the fix
import os
import numpy as np
import torch
from torch import nn
from torch.utils import data as tud

MENDED = os.environ.get("MENDED") == "1"
rng = np.random.RandomState(11)
torch.manual_seed(11)


def to_tensor(a):
    t = torch.from_numpy(a)
    if MENDED:
        t = t.clone()
    return t


def normalize(t, mean, std):
    return t.sub_(mean).div_(std)


class Compose:
    def __init__(self, *fns):
        self.fns = fns

    def __call__(self, v):
        for fn in self.fns:
            v = fn(v)
        return v


class Blobs(tud.Dataset):
    def __init__(self, n, transform=None):
        self.items = []
        yy, xx = np.mgrid[0:8, 0:8]
        for _ in range(n):
            cy, cx = rng.uniform(1, 6, size=2)
            img = 150 * np.exp(-((yy - cy) ** 2 + (xx - cx) ** 2) / 4) + 60
            img = (img + rng.normal(0, 4, img.shape)).astype(np.float32)
            self.items.append({"img": img, "pos": np.float32([cy, cx])})
        self.transform = transform

    def stats(self):
        allpix = np.stack([r["img"] for r in self.items])
        return float(allpix.mean()), float(allpix.std())

    def __getitem__(self, i):
        r = self.items[i]
        return self.transform(r["img"]), torch.from_numpy(r["pos"])

    def __len__(self):
        return len(self.items)


ds = Blobs(160)
mu, sigma = ds.stats()
ds.transform = Compose(to_tensor, lambda t: normalize(t, mu, sigma))
val = Blobs(64, Compose(to_tensor, lambda t: normalize(t, mu, sigma)))

net = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 2))
opt = torch.optim.Adam(net.parameters(), lr=5e-3)
for epoch in range(10):
    losses = []
    for img, pos in tud.DataLoader(ds, 16, shuffle=True):
        loss = nn.functional.mse_loss(net(img), pos)
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    print(f"[{epoch}] train mse {sum(losses) / len(losses):.4f}")

with torch.no_grad():
    vi, vp = next(iter(tud.DataLoader(val, 64)))
    print(f"val mse {nn.functional.mse_loss(net(vi), vp).item():.4f}")
