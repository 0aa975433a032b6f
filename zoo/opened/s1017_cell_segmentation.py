# expect: sick
# symptom: the segmentation loss falls a little and stays high (about 1.2); IoU stands at 0.75 to 0.85 even on the training images where 0.95 is usual
# axis: data
# cause: the random flips are drawn separately for the image and for its mask, so most masks do not fit their image
# says: (mask|label|target|annotation)[^.\n]{0,80}(flip|augment|transform|misalign|mismatch|not (fit|match|align|correspond)|out of sync|different|separately|independent|shuffl|noise|noisy|wrong|random)|(flip|augment\w*|transform)[^.\n]{0,80}(mask|label|target|independent|separate|not applied)|misalign|inputs? and (target|label|mask)s?[^.\n]{0,40}(not|mis|un)
# onset_step: 0
# fix: draw the augmentation once and apply it to image and mask together
# mended: the mask gets the same flips as its image
import os
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(17)

SIDE, N_IMAGES, BATCH, EPOCHS = 40, 480, 12, 8


def make_cells(n):
    yy, xx = torch.meshgrid(torch.arange(SIDE).float(), torch.arange(SIDE).float(), indexing="ij")
    images, masks = [], []
    for _ in range(n):
        mask = torch.zeros(SIDE, SIDE)
        img = 0.3 * torch.randn(SIDE, SIDE) + 0.01 * xx * torch.randn(())
        for _ in range(int(torch.randint(2, 6, ()))):
            cx, cy = torch.rand(2) * SIDE
            a, b = 3 + 5 * torch.rand(2)
            inside = ((xx - cx) / a) ** 2 + ((yy - cy) / b) ** 2 < 1
            img = torch.where(inside, img + 0.6 + 0.3 * torch.rand(()), img)
            mask[inside] = 1.0
        images.append(img[None])
        masks.append(mask[None])
    return torch.stack(images), torch.stack(masks)


class RandomFlip:
    def draw(self):
        return [d for d in (-1, -2) if torch.rand(()) < 0.5]

    def __call__(self, x, dims):
        return x.flip(dims) if dims else x


class Cells(Dataset):
    def __init__(self, images, masks, train=True):
        self.images, self.masks, self.train = images, masks, train
        self.flip = RandomFlip()

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        img, mask = self.images[i], self.masks[i]
        if self.train:
            first, second = self.flip.draw(), self.flip.draw()
            img = self.flip(img, first)
            mask = self.flip(mask, first if MENDED else second)
            img = img * (0.8 + 0.4 * torch.rand(())) + 0.05 * torch.randn(img.shape)
        return img, mask


def double(i, o):
    return nn.Sequential(
        nn.Conv2d(i, o, 3, padding=1),
        nn.BatchNorm2d(o),
        nn.ReLU(),
        nn.Conv2d(o, o, 3, padding=1),
        nn.BatchNorm2d(o),
        nn.ReLU(),
    )


class SmallUNet(nn.Module):
    def __init__(self, c=12):
        super().__init__()
        self.d1, self.d2, self.mid = double(1, c), double(c, 2 * c), double(2 * c, 4 * c)
        self.up2, self.u2 = nn.ConvTranspose2d(4 * c, 2 * c, 2, 2), double(4 * c, 2 * c)
        self.up1, self.u1 = nn.ConvTranspose2d(2 * c, c, 2, 2), double(2 * c, c)
        self.out = nn.Conv2d(c, 1, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(F.max_pool2d(a, 2))
        m = self.mid(F.max_pool2d(b, 2))
        y = self.u2(torch.cat([self.up2(m), b], 1))
        y = self.u1(torch.cat([self.up1(y), a], 1))
        return self.out(y)


def seg_loss(logits, mask):
    p = logits.sigmoid()
    dice = 1 - (2 * (p * mask).sum() + 1) / (p.sum() + mask.sum() + 1)
    return F.binary_cross_entropy_with_logits(logits, mask) + dice


@torch.no_grad()
def iou(model, images, masks):
    model.eval()
    pred = torch.cat([model(p) for p in images.split(40)]) > 0
    model.train()
    truth = masks > 0.5
    return ((pred & truth).sum() / (pred | truth).sum()).item()


def main():
    images, masks = make_cells(N_IMAGES)
    test = make_cells(80)
    loader = DataLoader(Cells(images, masks), batch_size=BATCH, shuffle=True)
    model = SmallUNet()
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-4)
    step = 0
    for epoch in range(EPOCHS):
        for img, mask in loader:
            loss = seg_loss(model(img), mask)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 20 == 0:
                print(f"epoch {epoch} step {step:4d}  loss {loss.item():.4f}")
            step += 1
        print(f"epoch {epoch} IoU train {iou(model, images[:80], masks[:80]):.3f}  test {iou(model, *test):.3f}")


if __name__ == "__main__":
    main()
