# expect: sick
# symptom: training loss falls a bit and then stays high, validation IoU is poor and jumps about; no error anywhere
# axis: data
# cause: the random flips are drawn separately for the image and for the mask, so that most training masks do not match their images
# says: (flip|augment\w*|transform\w*|mirror\w*).{0,160}(mask|label|target|separate\w*|independent\w*|different|mismatch\w*|misalign\w*|not.{0,20}(same|match|align|in sync)|out of sync|twice|desync\w*)|(mask|label|target)s?.{0,100}(misalign\w*|mismatch\w*|not (match|align|correspond)\w*|out of sync|no longer (match|line|correspond)\w*|flip\w*|augment\w*)|(image|input)s? and (mask|label|target)s?.{0,80}(different|independent\w*|separate\w*|inconsistent\w*|misalign\w*|mismatch\w*)
# onset_step: 0
# fix: draw the flip decision once and apply it to image and mask
# mended: one draw per sample is applied to both image and mask
import os
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(21)
rng = np.random.default_rng(21)
S = 32


def draw_cell(img, mask, yy, xx):
    cy, cx = rng.uniform(5, S - 5, size=2)
    a, b = rng.uniform(3, 7, size=2)
    th = rng.uniform(0, np.pi)
    u = (xx - cx) * np.cos(th) + (yy - cy) * np.sin(th)
    v = -(xx - cx) * np.sin(th) + (yy - cy) * np.cos(th)
    inside = (u / a) ** 2 + (v / b) ** 2 < 1
    img[inside] += rng.uniform(0.5, 1.0)
    mask[inside] = 1


def make_micrographs(n):
    yy, xx = np.mgrid[0:S, 0:S]
    imgs, masks = [], []
    for _ in range(n):
        img = np.zeros((S, S))
        mask = np.zeros((S, S))
        for _ in range(rng.integers(1, 4)):
            draw_cell(img, mask, yy, xx)
        img += 0.3 * (xx / S) * rng.uniform(0, 1) + 0.2 * rng.normal(size=img.shape)
        imgs.append(img)
        masks.append(mask)
    return np.array(imgs, dtype=np.float32), np.array(masks, dtype=np.float32)


class RandomFlip:
    def __init__(self, p=0.5):
        self.p = p

    def draw(self):
        return rng.random() < self.p, rng.random() < self.p

    def __call__(self, a, how=None):
        h, v = how if how is not None else self.draw()
        if h:
            a = a[:, ::-1]
        if v:
            a = a[::-1]
        return a.copy()


class CellDataset:
    def __init__(self, n, train):
        self.imgs, self.masks = make_micrographs(n)
        self.flip = RandomFlip() if train else None

    def __len__(self):
        return len(self.imgs)

    def __getitem__(self, i):
        img, mask = self.imgs[i], self.masks[i]
        if self.flip is not None:
            how = self.flip.draw() if MENDED else None
            img = self.flip(img, how)
            mask = self.flip(mask, how)
        return torch.from_numpy(img)[None], torch.from_numpy(mask)[None]


def conv(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU())


class UNet(nn.Module):
    def __init__(self, c=16):
        super().__init__()
        self.d1, self.d2, self.mid = conv(1, c), conv(c, 2 * c), conv(2 * c, 4 * c)
        self.u2, self.u1 = conv(6 * c, 2 * c), conv(3 * c, c)
        self.out = nn.Conv2d(c, 1, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(F.max_pool2d(a, 2))
        m = self.mid(F.max_pool2d(b, 2))
        m = self.u2(torch.cat([F.interpolate(m, scale_factor=2), b], 1))
        m = self.u1(torch.cat([F.interpolate(m, scale_factor=2), a], 1))
        return self.out(m)


def dice_bce(logits, y):
    p = torch.sigmoid(logits)
    dice = 1 - (2 * (p * y).sum() + 1) / (p.sum() + y.sum() + 1)
    return F.binary_cross_entropy_with_logits(logits, y) + dice


@torch.no_grad()
def val_iou(model, loader):
    model.eval()
    inter = union = 0.0
    for x, y in loader:
        p = model(x) > 0
        inter += (p & (y > 0)).sum().item()
        union += (p | (y > 0)).sum().item()
    model.train()
    return inter / union


train_loader = torch.utils.data.DataLoader(CellDataset(800, True), batch_size=16, shuffle=True, drop_last=True)
val_loader = torch.utils.data.DataLoader(CellDataset(160, False), batch_size=32)
model = UNet()
opt = torch.optim.Adam(model.parameters(), lr=1e-3)

step = 0
for epoch in range(8):
    for x, y in train_loader:
        loss = dice_bce(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 25 == 0:
            print(f"step {step:4d} loss {loss.item():.4f}")
        step += 1
    print(f"epoch {epoch} val iou {val_iou(model, val_loader):.3f}")
