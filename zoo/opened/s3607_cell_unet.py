# expect: sick
# symptom: the training loss stays high and the IoU on held-out images is very poor; no error, no NaN
# axis: data
# cause: the random flips are drawn anew for the mask, so image and mask often do not fit together
# says: (flip|augment|transform).{0,90}(mask|label|target|independ|separat|sync)|mask.{0,70}(misalign|flip|match)
# onset_step: 0
# fix: pass image and mask through the flip in one call so that both get the same draw
# mended: the script applies that change if the environment has MENDED=1
"""Segmentation of cells in microscope tiles with a two-level U-Net."""

import os

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(33)
MENDED = os.environ.get("MENDED") == "1"
SIDE = 32


class RandomFlip:
    """Flip along each image axis with probability p."""

    def __init__(self, p=0.5):
        self.p = p

    def __call__(self, *tensors):
        dims = [d for d in (-2, -1) if torch.rand(()).item() < self.p]
        out = tuple(t.flip(dims) if dims else t for t in tensors)
        return out if len(out) > 1 else out[0]


class IntensityJitter:
    def __call__(self, image):
        gain, shift = 1 + 0.2 * torch.randn(()), 0.1 * torch.randn(())
        return image * gain + shift


class CellTiles(Dataset):
    def __init__(self, n, seed, train):
        gen = torch.Generator().manual_seed(seed)
        axis = torch.arange(SIDE).float()
        yy, xx = torch.meshgrid(axis, axis, indexing="ij")
        self.images, self.masks = [], []
        for _ in range(n):
            image, mask = torch.zeros(SIDE, SIDE), torch.zeros(SIDE, SIDE)
            for _ in range(int(torch.randint(1, 4, (), generator=gen))):
                cy, cx, ry, rx = (
                    torch.rand(4, generator=gen) * torch.tensor([24, 24, 4, 4]) + torch.tensor([4, 4, 3, 3])
                ).tolist()
                inside = (((yy - cy) / ry) ** 2 + ((xx - cx) / rx) ** 2 < 1).float()
                image = torch.maximum(image, inside * (0.5 + 0.5 * torch.rand((), generator=gen)))
                mask = torch.maximum(mask, inside)
            image = image + 0.3 * torch.sin(xx / 5 + 6 * torch.rand((), generator=gen))
            image = image + 0.25 * torch.randn(SIDE, SIDE, generator=gen)
            self.images.append(image[None])
            self.masks.append(mask[None])
        self.flip, self.jitter = (RandomFlip(), IntensityJitter()) if train else (None, None)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        image, mask = self.images[i], self.masks[i]
        if self.flip is not None:
            image, mask = self.flip(image, mask) if MENDED else (self.flip(image), self.flip(mask))
            image = self.jitter(image)
        return image, mask


def double_conv(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, padding=1),
        nn.BatchNorm2d(cout),
        nn.ReLU(),
        nn.Conv2d(cout, cout, 3, padding=1),
        nn.BatchNorm2d(cout),
        nn.ReLU(),
    )


class UNet(nn.Module):
    def __init__(self, w=8):
        super().__init__()
        self.down1, self.down2, self.mid = double_conv(1, w), double_conv(w, 2 * w), double_conv(2 * w, 4 * w)
        self.up2, self.up1 = double_conv(6 * w, 2 * w), double_conv(3 * w, w)
        self.out = nn.Conv2d(w, 1, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        c = self.mid(F.max_pool2d(b, 2))
        b = self.up2(torch.cat([F.interpolate(c, scale_factor=2), b], 1))
        a = self.up1(torch.cat([F.interpolate(b, scale_factor=2), a], 1))
        return self.out(a)


@torch.no_grad()
def iou(model, loader):
    model.eval()
    inter = union = 0.0
    for image, mask in loader:
        pred = model(image) > 0
        inter += (pred & (mask > 0)).sum().item()
        union += (pred | (mask > 0)).sum().item()
    model.train()
    return inter / max(union, 1.0)


def main():
    train = DataLoader(CellTiles(640, 1, True), batch_size=16, shuffle=True)
    valid = DataLoader(CellTiles(160, 2, False), batch_size=40)
    model = UNet()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 5 * len(train))
    step, running = 0, None
    for epoch in range(5):
        for image, mask in train:
            loss = F.binary_cross_entropy_with_logits(model(image), mask)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            running = loss.item() if running is None else 0.95 * running + 0.05 * loss.item()
            if step % 20 == 0:
                print(f"step {step:4d} loss {loss.item():.4f} (avg {running:.4f})")
            step += 1
        print(f"epoch {epoch} valid IoU {iou(model, valid):.3f}")
    print(f"final loss {running:.4f} valid IoU {iou(model, valid):.3f}")


if __name__ == "__main__":
    main()
