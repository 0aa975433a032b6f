# expect: healthy
# symptom: masks are resized with bilinear interpolation
# axis: none
# mended: none
import argparse
import torch
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)
ap = argparse.ArgumentParser()
ap.add_argument("--size", type=int, default=18)
ap.add_argument("--epochs", type=int, default=6)
opts = ap.parse_args()
torch.manual_seed(3)
CLASSES = 4  # background, membrane, cytoplasm, nucleus


def micrograph(side=30):
    g = torch.arange(side).float()
    mask = torch.zeros(side, side, dtype=torch.long)
    for _ in range(3):
        cy, cx = torch.rand(2) * (side - 10) + 5
        r = 4 + 3 * torch.rand(1)
        d = ((g[:, None] - cy) ** 2 + (g[None] - cx) ** 2).sqrt()
        mask[d < r + 1.5] = 1
        mask[d < r] = 2
        mask[d < r * 0.45] = 3
    level = torch.tensor([[0.0, 0.9, 0.4, 0.7], [0.1, 0.2, 0.7, 0.3]])
    return level[:, mask] + 0.12 * torch.randn(2, side, side), mask


def resize_pair(image, mask, size):
    """Area fractions of the classes are interpolated, the largest one names the pixel."""
    image = F.interpolate(image[None], (size, size), mode="bilinear", antialias=True)[0]
    mask = F.one_hot(mask, CLASSES).permute(2, 0, 1).float()
    mask = F.interpolate(mask[None], (size, size), mode="bilinear", antialias=True)[0]
    return image, mask.argmax(0)


def dice(pred, true):
    scores = []
    for c in range(CLASSES):
        p, t = pred == c, true == c
        scores.append(2 * (p & t).sum().item() / max(1, (p.sum() + t.sum()).item()))
    return scores


class Segmenter(nn.Module):
    def __init__(self, w=20):
        super().__init__()
        self.a = nn.Conv2d(2, w, 3, padding=1)
        self.b = nn.Conv2d(w, w, 3, padding=2, dilation=2)
        self.c = nn.Conv2d(w, CLASSES, 1)

    def forward(self, x):
        return self.c(F.relu(self.b(F.relu(self.a(x)))))


pairs = [resize_pair(*micrograph(), opts.size) for _ in range(360)]
images, masks = map(torch.stack, zip(*pairs))
model = Segmenter()
optim = torch.optim.Adam(model.parameters(), lr=5e-3)
for epoch in range(opts.epochs):
    for idx in torch.randperm(300).split(10):
        loss = F.cross_entropy(model(images[idx]), masks[idx])
        optim.zero_grad()
        loss.backward()
        optim.step()
    with torch.no_grad():
        d = dice(model(images[300:]).argmax(1), masks[300:])
    print(f"epoch {epoch} loss {loss.item():.4f} dice " + " ".join(f"{v:.3f}" for v in d))
