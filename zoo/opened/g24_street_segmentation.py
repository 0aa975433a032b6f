# expect: sick
# symptom: the mIoU against the original masks stays low: the borders between road (0) and car (4) are full of classes that are not there
# axis: data
# cause: the class-index masks are resized with bilinear interpolation, which blends indices into other classes at each border
# says: bilinear|interpolat|nearest|resiz.*(mask|label)|(mask|label).*(resiz|blend)
# onset_step: 0
# fix: resize masks with mode="nearest"
# mended: nearest
import os
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(20)
MENDED = os.environ.get("MENDED") == "1"
FULL, SIDE, CLASSES = 40, 16, 5


def draw_street():
    mask = torch.zeros(FULL, FULL)
    tint = torch.tensor([0.1, 0.3, 0.5, 0.7, 0.9])
    for c in (4, 4, 2, 3, 1, 4, 4):
        h, w = torch.randint(4, 14, (2,)).tolist()
        y, x = torch.randint(0, FULL - h, (1,)).item(), torch.randint(0, FULL - w, (1,)).item()
        mask[y : y + h, x : x + w] = c
    grey = tint[mask.long()]
    wave = torch.stack([grey, (grey * 9).sin(), (grey * 17).cos()])
    return wave + 0.1 * torch.randn(3, FULL, FULL), mask


class Streets(Dataset):
    def __init__(self, n):
        self.items = [draw_street() for _ in range(n)]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        image, mask = self.items[i]
        image = F.interpolate(image[None], size=(SIDE, SIDE), mode="bilinear", align_corners=False, antialias=True)[0]
        if MENDED:
            mask = F.interpolate(mask[None, None], size=(SIDE, SIDE), mode="nearest")
        else:
            mask = F.interpolate(
                mask[None, None], size=(SIDE, SIDE), mode="bilinear", align_corners=False, antialias=True
            )
        return image, mask[0, 0].round().long()


def miou(model, items):
    inter, union = torch.zeros(CLASSES), torch.zeros(CLASSES)
    for image, mask in items:
        small = F.interpolate(image[None], size=(SIDE, SIDE), mode="bilinear", align_corners=False, antialias=True)
        with torch.no_grad():
            pred = F.interpolate(model(small), size=(FULL, FULL), mode="nearest").argmax(1)[0]
        for c in range(CLASSES):
            inter[c] += ((pred == c) & (mask == c)).sum()
            union[c] += ((pred == c) | (mask == c)).sum()
    return (inter / union.clamp(min=1)).tolist()


train, val = Streets(240), Streets(40)
net = nn.Sequential(
    nn.Conv2d(3, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, CLASSES, 1)
)
opt = torch.optim.Adam(net.parameters(), lr=4e-3)
for epoch in range(8):
    for image, mask in DataLoader(train, batch_size=12, shuffle=True):
        loss = F.cross_entropy(net(image), mask)
        opt.zero_grad()
        loss.backward()
        opt.step()
    iou = miou(net, val.items)
    print(
        f"epoch {epoch} loss {loss.item():.4f} mIoU {sum(iou) / CLASSES:.3f} per class "
        + " ".join(f"{v:.2f}" for v in iou)
    )
