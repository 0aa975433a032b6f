# expect: sick
# symptom: training loss falls a little and then sticks near 1 and noisy; validation IoU stays below what the model can do; nothing crashes
# axis: data
# cause: the random flips of the augmentation are applied to the image only, not to its mask, so three of four training pairs do not match
# says: (flip|mirror|augment\w*|transform\w*).{0,120}(mask|label|target|ground.?truth|annotation|only the (image|input)|image only|not (both|jointly|together)|mismatch|misalign|inconsisten)|(mask|label|target)s?.{0,100}(not|isn'?t|aren'?t|never|without|un).{0,30}(flip|mirror|augment|transform|align)|(image|input)s?.{0,60}(mask|label|target)s?.{0,60}(misalign|mismatch|out of (sync|step)|no longer (match|line)|do(es)? ?n[o']t (match|correspond|line))
# onset_step: 0
# fix: flip the mask together with its image
# mended: the same flips are applied to the masks
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(31)

SIZE = 32
BATCH = 16
STEPS = 320


def draw_scene(rng):
    """A road that winds to a vanishing point, some houses of nearly the same grey beside it."""
    img = 0.35 + 0.1 * rng.normal(size=(SIZE, SIZE))
    mask = np.zeros((SIZE, SIZE), dtype=np.float32)
    x0, x1 = rng.uniform(4, SIZE - 4), rng.uniform(4, SIZE - 4)
    bend = rng.uniform(-6, 6)
    cols = np.arange(SIZE)
    for r in range(SIZE):
        t = r / (SIZE - 1)
        centre = x0 * (1 - t) + x1 * t + bend * np.sin(np.pi * t)
        half = 1.0 + 4.5 * t
        mask[r] = np.abs(cols - centre) < half
    for _ in range(rng.integers(1, 4)):
        r, c = rng.integers(0, SIZE - 7, size=2)
        h, w = rng.integers(3, 7, size=2)
        img[r : r + h, c : c + w] += 0.45
    img = np.where(mask > 0, 0.75 + 0.12 * rng.normal(size=img.shape), img)
    return img.astype(np.float32), mask


def make_set(n, seed):
    rng = np.random.default_rng(seed)
    pairs = [draw_scene(rng) for _ in range(n)]
    x = torch.from_numpy(np.stack([p[0] for p in pairs])).unsqueeze(1)
    y = torch.from_numpy(np.stack([p[1] for p in pairs])).unsqueeze(1)
    return (x - 0.5) / 0.25, y


def conv(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(inplace=True))


class UNet(nn.Module):
    def __init__(self, w=12):
        super().__init__()
        self.d1, self.d2, self.mid = conv(1, w), conv(w, 2 * w), conv(2 * w, 4 * w)
        self.up2 = nn.ConvTranspose2d(4 * w, 2 * w, 2, stride=2)
        self.u2 = conv(4 * w, 2 * w)
        self.up1 = nn.ConvTranspose2d(2 * w, w, 2, stride=2)
        self.u1 = conv(2 * w, w)
        self.out = nn.Conv2d(w, 1, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(F.max_pool2d(a, 2))
        m = self.mid(F.max_pool2d(b, 2))
        b = self.u2(torch.cat([self.up2(m), b], dim=1))
        a = self.u1(torch.cat([self.up1(b), a], dim=1))
        return self.out(a)


def flip_some(t, horizontal, vertical):
    t = torch.where(horizontal.view(-1, 1, 1, 1), t.flip(3), t)
    return torch.where(vertical.view(-1, 1, 1, 1), t.flip(2), t)


def augment(x, y, gen):
    horizontal = torch.rand(len(x), generator=gen) < 0.5
    vertical = torch.rand(len(x), generator=gen) < 0.5
    gain = 1 + 0.1 * torch.randn(len(x), 1, 1, 1, generator=gen)
    x = flip_some(x * gain, horizontal, vertical)
    if MENDED:
        y = flip_some(y, horizontal, vertical)
    return x, y


def loss_fn(logits, y):
    bce = F.binary_cross_entropy_with_logits(logits, y)
    p = torch.sigmoid(logits)
    inter = (p * y).sum((1, 2, 3))
    dice = 1 - (2 * inter + 1) / (p.sum((1, 2, 3)) + y.sum((1, 2, 3)) + 1)
    return bce + dice.mean()


@torch.no_grad()
def iou(model, x, y):
    model.eval()
    p = model(x) > 0
    model.train()
    t = y > 0.5
    return ((p & t).sum() / (p | t).sum()).item()


def main():
    x, y = make_set(800, 1)
    vx, vy = make_set(100, 2)
    model = UNet()
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    gen = torch.Generator().manual_seed(0)
    t0 = time.time()
    for step in range(STEPS):
        idx = torch.randint(0, len(x), (BATCH,), generator=gen)
        bx, by = augment(x[idx], y[idx], gen)
        loss = loss_fn(model(bx), by)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f} t {time.time() - t0:.1f}")
        if step % 80 == 79:
            print(f"val iou {iou(model, vx, vy):.3f}")


if __name__ == "__main__":
    main()
