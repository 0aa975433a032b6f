# expect: sick
# symptom: loss falls quickly, but then swings wildly between 0 and 2 for the rest of the run
# axis: optimizer
# cause: Adam's betas are swapped: (0.999, 0.9)
# says: (?i)(beta|first moment|momentum)
# onset_step: 1
# fix: betas=(0.9, 0.999)
# mended: MENDED=1 python s08_patch_vit.py
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(8)


class Stripes(Dataset):
    """12x12 images with one of six orientations or frequencies."""

    def __init__(self, n):
        g = torch.Generator().manual_seed(33)
        self.y = torch.randint(0, 6, (n,), generator=g)
        u = torch.linspace(0, 1, 12)
        yy, xx = torch.meshgrid(u, u, indexing="ij")
        phase = 6.28 * torch.rand(n, 1, 1, generator=g)
        freq = torch.tensor([6.0, 6.0, 6.0, 14.0, 14.0, 14.0])[self.y].view(-1, 1, 1)
        ang = torch.tensor([0.0, 0.8, 1.57, 0.0, 0.8, 1.57])[self.y].view(-1, 1, 1)
        self.x = torch.sin(freq * (xx * ang.cos() + yy * ang.sin()) + phase) + 0.3 * torch.randn(n, 12, 12, generator=g)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i].unsqueeze(0), self.y[i]


class ViT(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.patch = nn.Conv2d(1, d, 4, stride=4)
        self.cls = nn.Parameter(torch.zeros(1, 1, d))
        self.pos = nn.Parameter(0.02 * torch.randn(1, 10, d))
        layer = nn.TransformerEncoderLayer(d, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.enc = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(d, 6)

    def forward(self, img):
        p = self.patch(img).flatten(2).transpose(1, 2)
        z = torch.cat([self.cls.expand(len(p), -1, -1), p], 1) + self.pos
        return self.head(self.enc(z)[:, 0])


betas = (0.9, 0.999) if os.environ.get("MENDED") == "1" else (0.999, 0.9)
vit = ViT()
opt = torch.optim.AdamW(vit.parameters(), lr=2e-3, betas=betas, weight_decay=0.01)
for step, (img, lab) in enumerate(DataLoader(Stripes(48 * 300), batch_size=48, shuffle=True), 1):
    loss = nn.functional.cross_entropy(vit(img), lab)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 15 == 0:
        print(f"iter {step} | ce {loss.item():.4f}")
