# expect: sick
# symptom: the first epoch is fine, at the start of every later epoch the loss jumps to a higher level and validation gets bad
# axis: data
# cause: the dataset normalises its numpy image in place (-=, /= on a view of the stored array), so each epoch normalises the already normalised images again and the values grow
# says: in.?place|(normali[sz]\w*|standardi[sz]\w*).{0,160}(again|twice|repeated|each epoch|every epoch|multiple|compound|mutat|modif|overwrit|\bview\b|already|accumulat)|(mutat|modif|overwrit)\w*.{0,120}(dataset|image|array|stored|cache)|\.copy\(|(dataset|image|array|stored|cache)\w*.{0,80}(mutated|modified|overwritten)
# onset_step: 60
# fix: copy the image before normalising it (or write img = (img - mean) / std)
# mended: takes a copy of the stored image in __getitem__
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(0)

EPOCHS = 4
SIZE = 40


def make_cells(n, seed):
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[:SIZE, :SIZE].astype(np.float32)
    images = np.empty((n, 3, SIZE, SIZE), np.float32)
    masks = np.zeros((n, SIZE, SIZE), np.float32)
    for i in range(n):
        img = np.full((3, SIZE, SIZE), 0.55, np.float32)
        img += 0.12 * np.sin(xx / rng.uniform(4, 10) + rng.uniform(0, 6)) * rng.uniform(0.2, 1)
        for _ in range(rng.integers(2, 7)):
            cx, cy = rng.uniform(4, SIZE - 4, 2)
            a, b = rng.uniform(3, 8, 2)
            inside = ((xx - cx) / a) ** 2 + ((yy - cy) / b) ** 2 < 1
            tint = np.array([rng.uniform(0.2, 0.6), rng.uniform(0.05, 0.4), rng.uniform(0.3, 0.7)], np.float32)
            img = np.where(inside[None], tint[:, None, None], img)
            masks[i][inside] = 1
        images[i] = np.clip(img + rng.normal(0, 0.09, img.shape), 0, 1)
    return images, masks


class CellDataset(Dataset):
    mean = np.array([0.485, 0.456, 0.406], np.float32)[:, None, None]
    std = np.array([0.229, 0.224, 0.225], np.float32)[:, None, None]

    def __init__(self, images, masks, augment):
        self.images, self.masks, self.augment = images, masks, augment
        self.rng = np.random.default_rng(17)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        img, mask = self.images[i], self.masks[i]
        if MENDED:
            img = img.copy()
        img -= self.mean
        img /= self.std
        if self.augment:
            if self.rng.random() < 0.5:
                img, mask = img[:, :, ::-1], mask[:, ::-1]
            if self.rng.random() < 0.5:
                img, mask = img[:, ::-1], mask[::-1]
        return torch.from_numpy(np.ascontiguousarray(img)), torch.from_numpy(np.ascontiguousarray(mask))


def double_conv(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.ReLU(), nn.Conv2d(o, o, 3, padding=1), nn.ReLU())


class UNet(nn.Module):
    def __init__(self, w=12):
        super().__init__()
        self.d1, self.d2, self.mid = double_conv(3, w), double_conv(w, 2 * w), double_conv(2 * w, 4 * w)
        self.u2, self.u1 = double_conv(6 * w, 2 * w), double_conv(3 * w, w)
        self.out = nn.Conv2d(w, 1, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(F.max_pool2d(a, 2))
        c = self.mid(F.max_pool2d(b, 2))
        y = self.u2(torch.cat([F.interpolate(c, scale_factor=2), b], 1))
        y = self.u1(torch.cat([F.interpolate(y, scale_factor=2), a], 1))
        return self.out(y).squeeze(1)


def dice(logits, mask):
    p = logits.sigmoid().flatten(1)
    m = mask.flatten(1)
    return ((2 * (p * m).sum(1) + 1) / (p.sum(1) + m.sum(1) + 1)).mean()


def main():
    train = CellDataset(*make_cells(480, 1), augment=True)
    valid = CellDataset(*make_cells(96, 2), augment=False)
    loader = DataLoader(train, batch_size=8, shuffle=True, drop_last=True, generator=torch.Generator().manual_seed(4))
    vbatches = list(DataLoader(valid, batch_size=32))
    model = UNet()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    step, t0 = 0, time.time()
    for epoch in range(EPOCHS):
        model.train()
        for img, mask in loader:
            logits = model(img)
            loss = F.binary_cross_entropy_with_logits(logits, mask) + 1 - dice(logits, mask)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 10 == 0:
                print(f"epoch {epoch} step {step:4d} loss {loss.item():.4f} ({time.time() - t0:.1f}s)")
            step += 1
        model.eval()
        with torch.no_grad():
            score = np.mean([dice(model(i), m).item() for i, m in vbatches])
        print(f"== epoch {epoch} valid dice {score:.4f}")


if __name__ == "__main__":
    main()
