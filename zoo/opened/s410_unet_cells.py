# expect: sick
# symptom: when the augmentation starts at step 240 the training loss jumps to a plateau and the Dice on clean validation images falls and stays low
# axis: data
# cause: the random flips are drawn separately for image and mask, so after augmentation the mask no longer belongs to the image
# says: (flip|augment|transform|mirror).*(mask|label|target|separate|independent|only|mismatch|misalign|consisten|pair|differ|not.*same)|(mask|label|target|image).*(flip|augment|mis.?align|mismatch|desync|out.?of.?sync|not.*(match|belong))|pair.*(broken|mis|augment)|(label|pair).?(noise|corrupt|shuffl|wrong)|wrong.?label
# onset_step: 241
# fix: draw the flips once per sample and apply the same ones to image and mask
# mended: loss and validation Dice go on improving after step 240: loss 0.08, Dice 0.96 (bare: loss 1.0, Dice 0.80 to 0.88)
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(9)

S, BATCH, STEPS, AUG_FROM = 32, 16, 420, 240
YY, XX = torch.meshgrid(torch.arange(S).float(), torch.arange(S).float(), indexing="ij")


def make_slides(n, g):
    img = torch.zeros(n, 1, S, S)
    mask = torch.zeros(n, 1, S, S)
    for i in range(n):
        field = 0.3 * torch.sin(XX / 7 + 6 * torch.rand(1, generator=g)) + 0.3 * torch.cos(YY / 9)
        for k in range(5):
            cy, cx = torch.rand(2, generator=g) * (S - 8) + 4
            ry, rx = 2.5 + 3 * torch.rand(2, generator=g)
            body = (((YY - cy) / ry) ** 2 + ((XX - cx) / rx) ** 2) < 1
            if k < 3:
                field[body] += 1.0
                mask[i, 0][body] = 1.0
            else:
                field[body] -= 0.8
                mask[i, 0][body] = 0.0
        img[i, 0] = field + 0.35 * torch.randn(S, S, generator=g)
    return img, mask


def flip(x, fh, fv):
    x = torch.where(fh[:, None, None, None], x.flip(-1), x)
    return torch.where(fv[:, None, None, None], x.flip(-2), x)


def coin(n):
    return torch.rand(n) < 0.5


def augment(img, mask):
    n = img.size(0)
    fh, fv = coin(n), coin(n)
    img = flip(img, fh, fv)
    if not MENDED:
        fh, fv = coin(n), coin(n)
    mask = flip(mask, fh, fv)
    img = img * (0.9 + 0.2 * torch.rand(n, 1, 1, 1)) + 0.1 * torch.randn(n, 1, 1, 1)
    return img, mask


def conv(i, o):
    return nn.Sequential(
        nn.Conv2d(i, o, 3, padding=1),
        nn.GroupNorm(4, o),
        nn.ReLU(),
        nn.Conv2d(o, o, 3, padding=1),
        nn.GroupNorm(4, o),
        nn.ReLU(),
    )


class UNet(nn.Module):
    def __init__(self, c=12):
        super().__init__()
        self.d1, self.d2, self.mid = conv(1, c), conv(c, 2 * c), conv(2 * c, 4 * c)
        self.u2, self.u1 = conv(6 * c, 2 * c), conv(3 * c, c)
        self.out = nn.Conv2d(c, 1, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(F.max_pool2d(a, 2))
        m = self.mid(F.max_pool2d(b, 2))
        y = self.u2(torch.cat([F.interpolate(m, scale_factor=2), b], 1))
        y = self.u1(torch.cat([F.interpolate(y, scale_factor=2), a], 1))
        return self.out(y)


def seg_loss(logit, mask):
    p = logit.sigmoid()
    inter = (p * mask).sum((1, 2, 3))
    dice = 1 - (2 * inter + 1) / (p.sum((1, 2, 3)) + mask.sum((1, 2, 3)) + 1)
    return F.binary_cross_entropy_with_logits(logit, mask) + dice.mean()


g = torch.Generator().manual_seed(77)
img, mask = make_slides(400, g)
v_img, v_mask = make_slides(64, g)
model = UNet()
opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-3)


@torch.no_grad()
def val_dice():
    p = (model(v_img) > 0).float()
    return (2 * (p * v_mask).sum() / (p.sum() + v_mask.sum() + 1e-6)).item()


perm, at = torch.randperm(len(img)), 0
for step in range(1, STEPS + 1):
    if at + BATCH > len(perm):
        perm, at = torch.randperm(len(img)), 0
    idx = perm[at : at + BATCH]
    at += BATCH
    x, y = img[idx], mask[idx]
    if step > AUG_FROM:
        x, y = augment(x, y)
    loss = seg_loss(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 30 == 0 or step == 1:
        print(f"step {step:4d}  loss {loss.item():.4f}  val dice {val_dice():.4f}")
print(f"final loss {loss.item():.4f}  val dice {val_dice():.4f}")
