# expect: sick
# symptom: the loss jumps between large positive and negative values and the IoU of the masks stays low
# axis: loss
# cause: the Dice term is computed on raw logits without a sigmoid: its denominator passes zero, it is unbounded
# says: (?i)dice.{0,80}(logit|sigmoid|probab|unbounded|denominator|raw)|(logit|sigmoid|unbounded).{0,60}dice
# onset_step: 0
# fix: apply sigmoid to the logits in the Dice term
# mended: the script applies that change if the environment has MENDED=1
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(5)
MENDED = os.environ.get("MENDED") == "1"
SIZE = 32


def make_scans(n, seed):
    g = torch.Generator().manual_seed(seed)
    yy, xx = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
    cx, cy = (torch.rand(n, 1, 1, generator=g) * 20 + 6 for _ in range(2))
    rx, ry = (torch.rand(n, 1, 1, generator=g) * 5 + 3 for _ in range(2))
    mask = (((xx - cx) / rx) ** 2 + ((yy - cy) / ry) ** 2 < 1).float()
    texture = F.avg_pool2d(torch.randn(n, 1, SIZE, SIZE, generator=g), 3, 1, 1).squeeze(1)
    gradient = (xx / SIZE - 0.5) * torch.randn(n, 1, 1, generator=g)
    image = 0.8 * mask + texture + gradient + 0.3 * torch.randn(n, SIZE, SIZE, generator=g)
    return image.unsqueeze(1), mask.unsqueeze(1)


def double_conv(c_in, c_out):
    return nn.Sequential(
        nn.Conv2d(c_in, c_out, 3, padding=1),
        nn.BatchNorm2d(c_out),
        nn.ReLU(inplace=True),
        nn.Conv2d(c_out, c_out, 3, padding=1),
        nn.BatchNorm2d(c_out),
        nn.ReLU(inplace=True),
    )


class SmallUNet(nn.Module):
    def __init__(self, base=8):
        super().__init__()
        self.enc1 = double_conv(1, base)
        self.enc2 = double_conv(base, 2 * base)
        self.mid = double_conv(2 * base, 4 * base)
        self.up2 = nn.ConvTranspose2d(4 * base, 2 * base, 2, stride=2)
        self.dec2 = double_conv(4 * base, 2 * base)
        self.up1 = nn.ConvTranspose2d(2 * base, base, 2, stride=2)
        self.dec1 = double_conv(2 * base, base)
        self.out = nn.Conv2d(base, 1, 1)

    def forward(self, x):
        e1 = self.enc1(x)
        e2 = self.enc2(F.max_pool2d(e1, 2))
        m = self.mid(F.max_pool2d(e2, 2))
        d2 = self.dec2(torch.cat([self.up2(m), e2], 1))
        d1 = self.dec1(torch.cat([self.up1(d2), e1], 1))
        return self.out(d1)


class BCEDiceLoss(nn.Module):
    def __init__(self, dice_weight=1.0, smooth=1.0):
        super().__init__()
        self.dice_weight = dice_weight
        self.smooth = smooth

    def forward(self, output, target):
        bce = F.binary_cross_entropy_with_logits(output, target)
        pred = output.sigmoid() if MENDED else output
        dims = (1, 2, 3)
        inter = (pred * target).sum(dims)
        dice = (2 * inter + self.smooth) / (pred.sum(dims) + target.sum(dims) + self.smooth)
        return bce + self.dice_weight * (1 - dice).mean()


@torch.no_grad()
def mean_iou(model, images, masks):
    model.eval()
    pred = model(images) > 0
    truth = masks > 0.5
    model.train()
    inter = (pred & truth).flatten(1).sum(1).float()
    union = (pred | truth).flatten(1).sum(1).float()
    return (inter / union.clamp(min=1)).mean().item()


def main():
    images, masks = make_scans(600, seed=0)
    val_images, val_masks = make_scans(120, seed=1)
    model = SmallUNet()
    criterion = BCEDiceLoss()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    step = 0
    for epoch in range(6):
        for idx in torch.randperm(len(images)).split(16):
            x, y = images[idx], masks[idx]
            if torch.rand(()) < 0.5:
                x, y = x.flip(-1), y.flip(-1)
            loss = criterion(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 10 == 0:
                print(f"epoch {epoch} step {step:3d} loss {loss.item():.4f}")
            step += 1
        print(f"epoch {epoch} val IoU {mean_iou(model, val_images, val_masks):.4f}")


if __name__ == "__main__":
    main()
