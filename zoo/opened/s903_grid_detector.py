# expect: sick
# symptom: the detector learns for a handful of steps and then its loss hardly moves for the rest of the run; a constant learning rate does far better
# axis: schedule
# cause: MultiStepLR, whose milestones are given in epochs, is stepped once per batch, so the learning rate is cut 100-fold within the first epoch
# says: ((lr|learning[ -_]?rate|schedul\w*|milestone\w*|multi_?step\w*).{0,80}(per[ -]?(batch|iter\w*|step)|(each|every|once (per|a)|after (each|every)) (mini-?)?(batch|iter\w*|optimi[sz]er step|step)|inner loop|in the batch loop|too (early|fast|soon|often|quickly)|(decay|drop|cut|collaps|shrink|shrunk|vanish|fell|fall)\w*.{0,30}(early|fast|soon|near(ly)? zero|100|first epoch))|schedul\w*.{0,30}too.?(often|early|fast|soon|many)|(lr|learning[ -_]?rate)\b.{0,30}(decayed|dropped|collapsed|cut)\b|step(ped)?.{0,20}per (batch|iteration).{0,30}(schedul|epoch))
# onset_step: 17
# fix: call scheduler.step() once per epoch, outside the batch loop
# mended: the scheduler is stepped at the end of each epoch instead of after each batch
import logging
import os

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
log = logging.getLogger("det")
torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"

SIZE, GRID, CLASSES = 48, 6, 3
CELL = SIZE // GRID


class ShapesDetection(Dataset):
    """1 to 3 bright objects; each is assigned to the grid cell of its centre."""

    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.images = torch.randn(n, 3, SIZE, SIZE, generator=g) * 0.2
        self.obj = torch.zeros(n, GRID, GRID)
        self.cls = torch.zeros(n, GRID, GRID, dtype=torch.long)
        self.box = torch.zeros(n, 4, GRID, GRID)
        for i in range(n):
            for _ in range(int(torch.randint(1, 4, (1,), generator=g))):
                c = int(torch.randint(0, CLASSES, (1,), generator=g))
                w, h = torch.randint(6, 16, (2,), generator=g).tolist()
                x = int(torch.randint(0, SIZE - w, (1,), generator=g))
                y = int(torch.randint(0, SIZE - h, (1,), generator=g))
                patch = self.images[i, :, y : y + h, x : x + w]
                patch += 0.4
                if c == 0:
                    patch[0] += 0.8
                elif c == 1:
                    patch[1, ::2] += 1.2
                else:
                    patch[2, :, ::2] += 1.2
                cx, cy = x + w / 2, y + h / 2
                gx, gy = int(cx // CELL), int(cy // CELL)
                self.obj[i, gy, gx] = 1
                self.cls[i, gy, gx] = c
                self.box[i, :, gy, gx] = torch.tensor([cx / CELL - gx, cy / CELL - gy, w / SIZE, h / SIZE])

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return self.images[i], self.obj[i], self.cls[i], self.box[i]


class GridDetector(nn.Module):
    def __init__(self, w=16):
        super().__init__()

        def block(i, o, s):
            return nn.Sequential(nn.Conv2d(i, o, 3, s, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU())

        self.backbone = nn.Sequential(
            block(3, w, 2), block(w, 2 * w, 2), block(2 * w, 3 * w, 2), block(3 * w, 3 * w, 1)
        )
        self.obj_head = nn.Conv2d(3 * w, 1, 1)
        self.cls_head = nn.Conv2d(3 * w, CLASSES, 1)
        self.box_head = nn.Conv2d(3 * w, 4, 1)
        nn.init.constant_(self.obj_head.bias, -2.5)

    def forward(self, x):
        f = self.backbone(x)
        return self.obj_head(f)[:, 0], self.cls_head(f), self.box_head(f).sigmoid()


def detection_loss(out, obj, cls, box):
    p_obj, p_cls, p_box = out
    pos = obj > 0
    n = pos.sum().clamp(min=1)
    l_obj = F.binary_cross_entropy_with_logits(p_obj, obj, reduction="sum") / n
    l_cls = F.cross_entropy(p_cls.permute(0, 2, 3, 1)[pos], cls[pos])
    l_box = F.l1_loss(p_box.permute(0, 2, 3, 1)[pos], box.permute(0, 2, 3, 1)[pos], reduction="sum") / n
    return l_obj + l_cls + 2.0 * l_box, (l_obj.item(), l_cls.item(), l_box.item())


@torch.no_grad()
def recall(model, loader):
    model.eval()
    hit = total = false = 0
    for x, obj, cls, box in loader:
        p_obj, p_cls, _ = model(x)
        found = (p_obj > 0) & (p_cls.argmax(1) == cls)
        hit += (found & (obj > 0)).sum().item()
        total += obj.sum().item()
        false += ((p_obj > 0) & (obj == 0)).sum().item()
    model.train()
    return hit / total, false


def main():
    torch.manual_seed(3)
    train = DataLoader(ShapesDetection(800, 1), batch_size=32, shuffle=True)
    val = DataLoader(ShapesDetection(200, 2), batch_size=50)
    model = GridDetector()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.008, momentum=0.9, weight_decay=1e-4)
    epochs = 24
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[16, 22], gamma=0.1)

    it = 0
    for epoch in range(epochs):
        for x, obj, cls, box in train:
            loss, parts = detection_loss(model(x), obj, cls, box)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            if not MENDED:
                scheduler.step()
            it += 1
            if it % 20 == 0:
                log.info("it %d loss %.4f obj %.4f cls %.4f box %.4f", it, loss.item(), *parts)
        if MENDED:
            scheduler.step()
        if epoch % 4 == 3:
            log.info("epoch %d recall %.3f, false positives %d", epoch, *recall(model, val))


if __name__ == "__main__":
    main()
