# expect: sick
# symptom: training loss falls and then stays high, predicted masks look like blurred mirror-symmetric ghosts, validation IoU is poor
# axis: data
# cause: the random flips are drawn separately for the image and for its mask, so about three quarters of the training pairs no longer line up
# says: ((mask|label|target)s?.{0,60}(do(es)?n.?t|do(es)? not|no longer) (match|line up|correspond|fit)|(independent|separate|different|mismatch|inconsisten|desync|not (the )?same|own random|unpaired|out of sync|only (the )?(image|mask)|misalign|not aligned|do(es)?n.?t (match|line up)|not (jointly|in sync)).{0,120}(flip|augment|transform)|(flip|augment|transform).{0,120}(independent|separate|different|mismatch|inconsisten|desync|not (the )?same|own random|unpaired|out of sync|only (the )?(image|mask)|misalign|not aligned|without (the )?(mask|label|target)|do(es)?n.?t (match|line up)|not (jointly|in sync|applied to the (mask|label|target)))|(image|input)s?.{0,40}(mask|label|target)s?.{0,40}(misalign|not aligned|out of sync|mismatch|do(es)?n.?t (match|line up|correspond))|(mask|label|target)s?.{0,40}(misalign|not aligned|out of sync|do(es)?n.?t (match|line up|correspond)).{0,40}(image|input))
# onset_step: 1
# fix: draw the flip decisions once per sample and apply the same flips to the image and to the mask
# mended: with MENDED=1 the dataset stacks image and mask and sends them through the augmentation together
import os
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)

MENDED = os.environ.get("MENDED") == "1"
SIZE = 32
CLASSES = 3


def seed_everything(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def draw_scene(rng):
    """A grey noisy scan with one bright disc (class 1) and one textured bar (class 2)."""
    yy, xx = np.mgrid[0:SIZE, 0:SIZE]
    img = rng.normal(0.0, 0.25, (SIZE, SIZE)).astype(np.float32)
    mask = np.zeros((SIZE, SIZE), dtype=np.int64)
    cx, cy, r = rng.uniform(6, 26), rng.uniform(6, 26), rng.uniform(3, 6)
    disc = (xx - cx) ** 2 + (yy - cy) ** 2 < r * r
    img[disc] += 1.0
    mask[disc] = 1
    x0, y0 = rng.integers(1, 20), rng.integers(1, 22)
    w, h = rng.integers(6, 11), rng.integers(4, 9)
    bar = np.zeros_like(disc)
    bar[y0 : y0 + h, x0 : x0 + w] = True
    bar &= ~disc
    img[bar] += np.where((xx[bar] + yy[bar]) % 2 == 0, 0.9, -0.6)
    mask[bar] = 2
    return img[None], mask


class RandomFlip:
    def __init__(self, p=0.5):
        self.p = p

    def __call__(self, t):
        if random.random() < self.p:
            t = torch.flip(t, dims=[-1])
        if random.random() < self.p:
            t = torch.flip(t, dims=[-2])
        return t


class ScanDataset(Dataset):
    def __init__(self, n, seed, augment=None):
        rng = np.random.default_rng(seed)
        scenes = [draw_scene(rng) for _ in range(n)]
        self.images = torch.from_numpy(np.stack([s[0] for s in scenes]))
        self.masks = torch.from_numpy(np.stack([s[1] for s in scenes]))
        self.augment = augment

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        image, mask = self.images[i], self.masks[i]
        if self.augment is not None:
            if MENDED:
                both = self.augment(torch.cat([image, mask[None].float()]))
                image, mask = both[:1], both[1].long()
            else:
                image = self.augment(image)
                mask = self.augment(mask)
        return image, mask


def block(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, padding=1),
        nn.BatchNorm2d(cout),
        nn.ReLU(),
        nn.Conv2d(cout, cout, 3, padding=1),
        nn.BatchNorm2d(cout),
        nn.ReLU(),
    )


class UNet(nn.Module):
    def __init__(self, base=8):
        super().__init__()
        self.d1, self.d2, self.d3 = block(1, base), block(base, base * 2), block(base * 2, base * 2)
        self.u2, self.u1 = block(base * 4, base), block(base * 2, base)
        self.out = nn.Conv2d(base, CLASSES, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(F.max_pool2d(a, 2))
        c = self.d3(F.max_pool2d(b, 2))
        u = self.u2(torch.cat([F.interpolate(c, scale_factor=2), b], 1))
        u = self.u1(torch.cat([F.interpolate(u, scale_factor=2), a], 1))
        return self.out(u)


class Trainer:
    def __init__(self, model, train_set, val_set, lr=2e-3, epochs=8):
        self.model = model
        self.train_loader = DataLoader(train_set, batch_size=16, shuffle=True, num_workers=2, drop_last=True)
        self.val_loader = DataLoader(val_set, batch_size=64)
        self.opt = torch.optim.AdamW(model.parameters(), lr=lr)
        self.epochs = epochs
        self.step = 0

    def fit(self):
        for epoch in range(self.epochs):
            self.model.train()
            for image, mask in self.train_loader:
                loss = F.cross_entropy(self.model(image), mask)
                self.opt.zero_grad(set_to_none=True)
                loss.backward()
                self.opt.step()
                self.step += 1
                if self.step % 50 == 0:
                    print(f"step {self.step} loss {loss.item():.4f}", flush=True)
            print(f"epoch {epoch} val_iou {self.evaluate():.3f}", flush=True)

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        inter, union = torch.zeros(CLASSES), torch.zeros(CLASSES)
        for image, mask in self.val_loader:
            pred = self.model(image).argmax(1)
            for c in range(CLASSES):
                inter[c] += ((pred == c) & (mask == c)).sum()
                union[c] += ((pred == c) | (mask == c)).sum()
        return (inter[1:] / union[1:].clamp(min=1)).mean().item()


def main():
    seed_everything(3)
    train_set = ScanDataset(480, seed=1, augment=RandomFlip())
    val_set = ScanDataset(128, seed=2)
    trainer = Trainer(UNet(), train_set, val_set)
    trainer.fit()
    print(f"final val_iou {trainer.evaluate():.3f}")


if __name__ == "__main__":
    main()
