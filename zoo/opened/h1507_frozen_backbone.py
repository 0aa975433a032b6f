# expect: healthy
# symptom: in the second phase most parameters have no gradient and are in no optimizer, the backbone stays in eval mode although model.train() is called each epoch, and its BatchNorm statistics do not move
# axis: none
# mended: none
"""Transfer learning: a CNN trained on a source task becomes a frozen feature extractor; a new head learns a small target task."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(16)

SIZE, SOURCE_CLASSES, TARGET_CLASSES = 12, 12, 8
SOURCE_STEPS, EPOCHS, BATCH = 240, 15, 16


def gratings(n, classes, offset, noise):
    """Class = orientation; phase, frequency and contrast are random."""
    y = torch.randint(0, classes, (n,))
    angle = (y.float() + offset) * torch.pi / classes
    freq = 0.9 + 0.4 * torch.rand(n)
    phase = 6.28 * torch.rand(n)
    yy, xx = torch.meshgrid(torch.arange(SIZE).float(), torch.arange(SIZE).float(), indexing="ij")
    arg = xx * angle.cos()[:, None, None] + yy * angle.sin()[:, None, None]
    img = torch.sin(freq[:, None, None] * arg + phase[:, None, None]) * (0.7 + 0.6 * torch.rand(n, 1, 1))
    return (img + noise * torch.randn_like(img)).unsqueeze(1), y


class Backbone(nn.Module):
    def __init__(self, ch=16):
        super().__init__()

        def stage(i, o):
            return nn.Sequential(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU())

        self.s1, self.s2, self.s3 = stage(1, ch), stage(ch, 2 * ch), stage(2 * ch, 3 * ch)
        self.dim = 3 * ch

    def forward(self, x):
        x = F.max_pool2d(self.s1(x), 2)
        return self.s3(self.s2(x)).mean(dim=(2, 3))


class FineTuned(nn.Module):
    """New head on a fixed backbone; the pretrained BatchNorm statistics are kept."""

    def __init__(self, backbone, classes):
        super().__init__()
        self.backbone = backbone
        self.head = nn.Sequential(nn.Linear(backbone.dim, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, classes))
        for p in self.backbone.parameters():
            p.requires_grad = False

    def train(self, mode=True):
        super().train(mode)
        self.backbone.eval()
        return self

    def forward(self, x):
        with torch.no_grad():
            feats = self.backbone(x)
        return self.head(feats)


def pretrain():
    backbone = Backbone()
    model = nn.Sequential(backbone, nn.Linear(backbone.dim, SOURCE_CLASSES))
    x, y = gratings(4000, SOURCE_CLASSES, 0.0, 0.9)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(SOURCE_STEPS):
        rows = torch.randint(0, len(y), (48,))
        loss = F.cross_entropy(model(x[rows]), y[rows])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0:
            print(f"source step {step} loss {loss.item():.4f}")
    return backbone


@torch.no_grad()
def accuracy(model, x, y):
    model.eval()
    return (model(x).argmax(1) == y).float().mean().item()


def main():
    backbone = pretrain()
    loader = DataLoader(TensorDataset(*gratings(320, TARGET_CLASSES, 0.3, 1.0)), batch_size=BATCH, shuffle=True)
    test = gratings(500, TARGET_CLASSES, 0.3, 1.0)
    model = FineTuned(backbone, TARGET_CLASSES)
    opt = torch.optim.AdamW(model.head.parameters(), lr=3e-3, weight_decay=1e-2)
    n_train = sum(p.numel() for p in model.parameters() if p.requires_grad)
    print(f"trainable {n_train} of {sum(p.numel() for p in model.parameters())} parameters")
    for epoch in range(EPOCHS):
        model.train()
        total = 0.0
        for x, y in loader:
            loss = F.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
        print(f"target epoch {epoch} loss {total / len(loader):.4f} test accuracy {accuracy(model, *test):.3f}")


if __name__ == "__main__":
    main()
