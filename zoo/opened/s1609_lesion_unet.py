# expect: sick
# symptom: the segmentation loss falls a little and then stays flat near 0.95, more than ten times too high for such easy pictures; the validation Dice is clearly lower than it should be
# axis: data
# cause: random flips and rotations are applied to the image but not to its mask, so most training masks do not fit their images
# says: (flip|augment|rotat|transform).{0,120}(mask|label|target)|(mask|label|target).{0,100}(flip|augment|rotat|transform|misalign|not match|do(es)? not (fit|match|correspond)|out of (sync|register))|misalign
# onset_step: 0
# fix: apply the same geometric transform to image and mask
# mended: the mask gets the same flips and rotation
import os
import time
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(17)

SIZE, BATCH, STEPS, N_TRAIN = 40, 10, 300, 400


def scans(n, g):
    """Grey scans with bright and dark blobs; only the bright ones with a rim are lesions."""
    u = torch.arange(SIZE).float()
    yy, xx = torch.meshgrid(u, u, indexing="ij")
    img = 0.25 * F.interpolate(torch.randn(n, 1, 6, 6, generator=g), size=SIZE, mode="bilinear", align_corners=False)
    mask = torch.zeros(n, 1, SIZE, SIZE)
    for i in range(n):
        for kind in ["lesion", "vessel"] + (["lesion"] if i % 2 else []):
            cx, cy = (6 + (SIZE - 12) * torch.rand(2, generator=g)).tolist()
            rx, ry = (3 + 4 * torch.rand(2, generator=g)).tolist()
            d = ((xx - cx) / rx) ** 2 + ((yy - cy) / ry) ** 2
            if kind == "lesion":
                img[i, 0] += 0.9 * (d < 1).float() + 0.5 * ((d > 0.7) & (d < 1)).float()
                mask[i, 0][d < 1] = 1
            else:
                img[i, 0] += 0.7 * torch.exp(-d)
    return img + 0.2 * torch.randn(img.shape, generator=g), mask


class Augment:
    def __init__(self, seed):
        self.g = torch.Generator().manual_seed(seed)

    def spatial(self, t, fh, fv, k):
        if fh:
            t = t.flip(-1)
        if fv:
            t = t.flip(-2)
        return torch.rot90(t, k, (-2, -1))

    def __call__(self, img, mask):
        fh, fv, rot = (torch.rand(3, generator=self.g) < torch.tensor([0.5, 0.25, 0.2])).tolist()
        k = int(rot)
        img = self.spatial(img, fh, fv, k)
        if MENDED:
            mask = self.spatial(mask, fh, fv, k)
        img = img * (0.9 + 0.2 * torch.rand(1, generator=self.g)) + 0.05 * torch.randn(1, generator=self.g)
        return img, mask


def double(a, b):
    return nn.Sequential(
        nn.Conv2d(a, b, 3, padding=1),
        nn.GroupNorm(4, b),
        nn.ReLU(),
        nn.Conv2d(b, b, 3, padding=1),
        nn.GroupNorm(4, b),
        nn.ReLU(),
    )


class UNet(nn.Module):
    def __init__(self, w=12):
        super().__init__()
        self.d1, self.d2, self.mid = double(1, w), double(w, 2 * w), double(2 * w, 4 * w)
        self.u2, self.u1 = double(6 * w, 2 * w), double(3 * w, w)
        self.out = nn.Conv2d(w, 1, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(F.max_pool2d(a, 2))
        c = self.mid(F.max_pool2d(b, 2))
        b = self.u2(torch.cat([F.interpolate(c, scale_factor=2), b], 1))
        return self.out(self.u1(torch.cat([F.interpolate(b, scale_factor=2), a], 1)))


def dice(p, m):
    return (2 * (p * m).sum((1, 2, 3)) + 1) / (p.sum((1, 2, 3)) + m.sum((1, 2, 3)) + 1)


def main():
    g = torch.Generator().manual_seed(2)
    img, mask = scans(N_TRAIN, g)
    vimg, vmask = scans(100, g)
    model, aug = UNet(), Augment(9)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-4)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, STEPS)
    run, t0 = 0.0, time.time()
    for step in range(STEPS):
        pick = torch.randint(0, N_TRAIN, (BATCH,), generator=g).tolist()
        x, y = map(torch.stack, zip(*[aug(img[i], mask[i]) for i in pick]))
        logit = model(x)
        loss = F.binary_cross_entropy_with_logits(logit, y) + (1 - dice(logit.sigmoid(), y)).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        run += loss.item()
        if (step + 1) % 20 == 0:
            print(f"step {step + 1:4d} loss {run / 20:.4f} ({time.time() - t0:.1f}s)", flush=True)
            run = 0.0
        if (step + 1) % 150 == 0:
            with torch.no_grad():
                print(f"  val dice {dice((model(vimg) > 0).float(), vmask).mean():.3f}", flush=True)


if __name__ == "__main__":
    main()
