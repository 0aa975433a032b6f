# expect: sick
# symptom: the keypoint loss falls at first and then stays at a high floor; validation error in pixels is large and does not improve
# axis: data
# cause: the horizontal flip augmentation turns the image but leaves the x coordinates of the keypoints as they were, so half of the targets are wrong
# says: flip|mirror|augment|(target|label|keypoint|coordinate)s?.{0,60}(do(es)? ?n.t match|mismatch|inconsisten|wrong|not (match|transform|moved|updated)|mislabel|nois|contradict)
# onset_step: 0
# fix: x -> 1 - x for the keypoints of a flipped image
# mended: the flip also mirrors the x coordinates
import argparse
import os

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)


class Compose:
    def __init__(self, *ts):
        self.ts = ts

    def __call__(self, img, pts):
        for t in self.ts:
            img, pts = t(img, pts)
        return img, pts


class RandomBrightness:
    def __init__(self, rng, amount=0.3):
        self.rng, self.amount = rng, amount

    def __call__(self, img, pts):
        return img * (1 + self.amount * float(self.rng.uniform(-1, 1))), pts


class RandomHorizontalFlip:
    def __init__(self, rng, p=0.5):
        self.rng, self.p = rng, p

    def __call__(self, img, pts):
        if self.rng.random() < self.p:
            img = img.flip(-1)
            if MENDED:
                pts = torch.stack([1 - pts[:, 0], pts[:, 1]], 1)
        return img, pts


class RandomNoise:
    def __init__(self, std=0.05):
        self.std = std

    def __call__(self, img, pts):
        return img + self.std * torch.randn_like(img), pts


class Buoys(Dataset):
    """Four coloured buoys around a raft seen from above; targets are the buoy positions in [0, 1]."""

    COLOURS = torch.tensor([[1.0, 0.1, 0.1], [0.1, 1.0, 0.1], [0.2, 0.3, 1.0], [1.0, 0.9, 0.1]])

    def __init__(self, n, size, seed, transform=None):
        rng = np.random.default_rng(seed)
        self.transform = transform
        ax = (torch.arange(size) + 0.5) / size
        yy, xx = torch.meshgrid(ax, ax, indexing="ij")
        self.images, self.points = torch.zeros(n, 3, size, size), torch.zeros(n, 4, 2)
        for i in range(n):
            cx, cy = rng.uniform(0.35, 0.65, 2)
            raft = torch.exp(-((xx - cx) ** 2 + (yy - cy) ** 2) / 0.02)
            self.images[i] += 0.4 * raft
            turn, slot = rng.uniform(0, 2 * np.pi), rng.permutation(4)
            for k in range(4):
                a = turn + slot[k] * 1.2 + rng.normal(0, 0.2)
                r = rng.uniform(0.2, 0.3)
                px, py = cx + r * np.cos(a), cy + r * np.sin(a)
                self.points[i, k] = torch.tensor([px, py])
                blob = torch.exp(-((xx - px) ** 2 + (yy - py) ** 2) / 0.003)
                self.images[i] += self.COLOURS[k][:, None, None] * blob

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        img, pts = self.images[i], self.points[i]
        return self.transform(img, pts) if self.transform else (img, pts)


class KeypointNet(nn.Module):
    def __init__(self, w=16):
        super().__init__()
        layers, c = [], 3
        for k in (w, 2 * w, 4 * w):
            layers += [nn.Conv2d(c, k, 3, 2, 1), nn.BatchNorm2d(k), nn.ReLU()]
            c = k
        self.features = nn.Sequential(*layers)
        self.regress = nn.Sequential(nn.Flatten(), nn.Linear(4 * w * 16, 128), nn.ReLU(), nn.Linear(128, 8))

    def forward(self, x):
        return self.regress(self.features(x)).view(-1, 4, 2)


def collate(samples):
    imgs, pts = zip(*samples)
    return torch.stack(imgs), torch.stack(pts)


@torch.no_grad()
def pixel_error(model, loader, size):
    model.eval()
    err = [(model(x) - y).norm(dim=-1).mean().item() * size for x, y in loader]
    model.train()
    return sum(err) / len(err)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--size", type=int, default=32)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--epochs", type=int, default=12)
    p.add_argument("--lr", type=float, default=1.5e-3)
    p.add_argument("--seed", type=int, default=2)
    a = p.parse_args()
    torch.manual_seed(a.seed)
    rng = np.random.default_rng(a.seed)
    aug = Compose(RandomHorizontalFlip(rng), RandomBrightness(rng), RandomNoise())
    train = DataLoader(Buoys(1024, a.size, 1, aug), a.batch, shuffle=True, collate_fn=collate)
    val = DataLoader(Buoys(256, a.size, 2), 128, collate_fn=collate)
    model = KeypointNet()
    opt = torch.optim.Adam(model.parameters(), lr=a.lr)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, a.epochs)
    step = 0
    for epoch in range(a.epochs):
        for x, y in train:
            loss = nn.functional.smooth_l1_loss(model(x), y, beta=0.05)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 16 == 0:
                print(f"step {step} loss {loss.item():.5f}", flush=True)
            step += 1
        sched.step()
        print(f"epoch {epoch} val error {pixel_error(model, val, a.size):.2f} px", flush=True)


if __name__ == "__main__":
    main()
