# expect: healthy
# cause: none, only a few annotated pixels per image and some images without any; the loss masks the rest and guards the empty case
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(220)
IGNORE = 255


class Scribbles(Dataset):
    def __init__(self, n, dense=False):
        g = torch.linspace(-1, 1, 20)
        yy, xx = torch.meshgrid(g, g, indexing="ij")
        a, b, c = torch.randn(3, n, 1, 1)
        land = (a * xx + b * yy + 0.5 * c > 0).long()
        cx, cy = torch.rand(2, n, 1, 1) * 1.4 - 0.7
        land[(xx - cx) ** 2 + (yy - cy) ** 2 < 0.12] = 2
        tone = torch.tensor([[0.2, 0.5, 0.1], [0.5, 0.3, 0.2], [0.1, 0.2, 0.6]])
        self.images = tone[land].permute(0, 3, 1, 2) * 2 - 0.6 + 0.35 * torch.randn(n, 3, 20, 20)
        self.labels = land
        if not dense:
            keep = torch.rand(n, 20, 20) < 0.02
            keep &= torch.rand(n, 1, 1) < 0.7
            self.labels = torch.where(keep, land, torch.full_like(land, IGNORE))

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return self.images[i], self.labels[i]


class SegNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(3, 24, 3, padding=1)
        self.b = nn.Conv2d(24, 24, 3, padding=2, dilation=2)
        self.c = nn.Conv2d(24, 3, 1)

    def forward(self, x):
        return self.c(F.relu(self.b(F.relu(self.a(x)))))


def masked_loss(logits, labels):
    marked = labels != IGNORE
    if not marked.any():
        return logits.sum() * 0.0
    return F.cross_entropy(logits.permute(0, 2, 3, 1)[marked], labels[marked])


train = DataLoader(Scribbles(800), batch_size=16, shuffle=True)
dense = Scribbles(150, dense=True)
net = SegNet()
opt = torch.optim.Adam(net.parameters(), lr=3e-3)
for epoch in range(8):
    total = 0.0
    for images, labels in train:
        loss = masked_loss(net(images), labels)
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item()
    with torch.no_grad():
        right = (net(dense.images).argmax(1) == dense.labels).float().mean().item()
    print(f"epoch {epoch} loss {total / len(train):.4f} pixels right on fully labelled images {right:.3f}")
