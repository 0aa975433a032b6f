# expect: sick
# symptom: class loss goes down, box loss sticks at a high level from early on, predicted boxes sit near the image centre horizontally, validation IoU is poor
# axis: data
# cause: the random horizontal flip of the augmentation mirrors the image but not the box, so in half of the samples the x centre of the target is wrong
# says: flip|mirror|augment\w*[^.]{0,80}(box|label|target|annotation|coord|geometr)|(box|target|label|annotation)\w*[^.]{0,60}(not (flip|mirror|transform|updat|adjust)|inconsisten|mismatch|out of sync)
# onset_step: 0
# fix: mirror the box together with the image: cx = 1 - cx
# mended: the box centre is mirrored when the image is
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(13)

SIZE, CLASSES, EPOCHS, BATCH = 32, 3, 6, 32


class Parts(Dataset):
    """Grey images with one part (plate, disc or bracket) on a cluttered background; box as cx, cy, w, h in 0..1."""

    def __init__(self, n, seed, train):
        r = np.random.default_rng(seed)
        self.train, self.rng = train, np.random.default_rng(seed + 100)
        self.images, self.labels, self.boxes = [], [], []
        for _ in range(n):
            im = 0.3 * r.normal(size=(SIZE, SIZE)).astype(np.float32)
            w, h = r.integers(7, 14, size=2)
            x, y = int(r.integers(0, SIZE - w)), int(r.integers(0, SIZE - h))
            k = int(r.integers(CLASSES))
            yy, xx = np.mgrid[0:h, 0:w]
            if k == 0:
                part = np.ones((h, w))
            elif k == 1:
                part = ((yy - (h - 1) / 2) / (h / 2)) ** 2 + ((xx - (w - 1) / 2) / (w / 2)) ** 2 <= 1
            else:
                part = (yy < 2) | (yy >= h - 2) | (xx < 2) | (xx >= w - 2)
            im[y : y + h, x : x + w] += part * float(r.uniform(0.8, 1.4))
            self.images.append(torch.from_numpy(im)[None])
            self.labels.append(k)
            self.boxes.append(torch.tensor([x + w / 2, y + h / 2, w, h], dtype=torch.float32) / SIZE)

    def __len__(self):
        return len(self.images)

    def augment(self, im, box):
        im = im * float(self.rng.uniform(0.8, 1.2)) + float(self.rng.normal(0, 0.05))
        if self.rng.random() < 0.5:
            im = im.flip(-1)
            if MENDED:
                box = box.clone()
                box[0] = 1.0 - box[0]
        return im, box

    def __getitem__(self, i):
        im, box = self.images[i], self.boxes[i]
        if self.train:
            im, box = self.augment(im, box)
        return im, self.labels[i], box


class Detector(nn.Module):
    def __init__(self, c=16):
        super().__init__()

        def stage(i, o):
            return nn.Sequential(
                nn.Conv2d(i, o, 3, padding=1, bias=False), nn.GroupNorm(4, o), nn.ReLU(), nn.MaxPool2d(2)
            )

        self.body = nn.Sequential(stage(1, c), stage(c, 2 * c), stage(2 * c, 3 * c))
        self.fc = nn.Sequential(nn.Flatten(), nn.Linear(3 * c * 16, 128), nn.ReLU())
        self.cls, self.box = nn.Linear(128, CLASSES), nn.Linear(128, 4)

    def forward(self, x):
        h = self.fc(self.body(x))
        return self.cls(h), self.box(h).sigmoid()


def iou(a, b):
    al, ah = a[:, :2] - a[:, 2:] / 2, a[:, :2] + a[:, 2:] / 2
    bl, bh = b[:, :2] - b[:, 2:] / 2, b[:, :2] + b[:, 2:] / 2
    inter = (torch.minimum(ah, bh) - torch.maximum(al, bl)).clamp(min=0).prod(1)
    return inter / (a[:, 2:].prod(1) + b[:, 2:].prod(1) - inter)


@torch.no_grad()
def validate(model, loader):
    model.eval()
    ious, hits = [], []
    for x, y, b in loader:
        logits, box = model(x)
        ious.append(iou(box, b))
        hits.append((logits.argmax(1) == y).float())
    model.train()
    return torch.cat(ious).mean().item(), torch.cat(hits).mean().item()


def main():
    train = DataLoader(
        Parts(2200, 1, train=True),
        batch_size=BATCH,
        shuffle=True,
        drop_last=True,
        generator=torch.Generator().manual_seed(1),
    )
    val = DataLoader(Parts(400, 2, train=False), batch_size=100)
    model = Detector()
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=EPOCHS * len(train))
    step = 0
    for epoch in range(EPOCHS):
        for x, y, b in train:
            logits, box = model(x)
            l_cls = F.cross_entropy(logits, y)
            l_box = F.smooth_l1_loss(box, b, beta=0.05)
            loss = l_cls + 5.0 * l_box
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            if step % 25 == 0:
                print(f"step {step:4d}  loss {loss.item():.4f}  cls {l_cls.item():.4f}  box {l_box.item():.4f}")
            step += 1
        m, a = validate(model, val)
        print(f"epoch {epoch}  val mean IoU {m:.3f}  val class acc {a:.3f}")


if __name__ == "__main__":
    main()
