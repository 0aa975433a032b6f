# A small vision transformer for patterns of stripes, Adam without any warm-up. The rate was copied from a run with SGD: 0.05 from the
# first step on, where the twin has 0.001.
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

arg = argparse.ArgumentParser()
arg.add_argument("--seed", type=int, default=0)
arg.add_argument("--twin", action="store_true")
arg = arg.parse_args()

CLASSES = 8
src = torch.Generator().manual_seed(1234)
yy, xx = torch.meshgrid(torch.linspace(-1, 1, 16), torch.linspace(-1, 1, 16), indexing="ij")


def stripes(n, g=None):
    label = torch.randint(0, CLASSES, (n,), generator=g)
    angle = label * torch.pi / CLASSES + 0.08 * torch.randn(n, generator=g)
    phase = torch.rand(n, generator=g) * 6.283
    freq = 5 + 3 * torch.rand(n, generator=g)
    along = angle.cos()[:, None, None] * xx + angle.sin()[:, None, None] * yy
    img = torch.sin(freq[:, None, None] * along + phase[:, None, None])
    return (img + 0.6 * torch.randn(n, 16, 16, generator=g))[:, None], label


class ViT(nn.Module):
    def __init__(self, d=48, depth=3):
        super().__init__()
        self.patch = nn.Conv2d(1, d, 4, stride=4)
        self.cls = nn.Parameter(torch.zeros(1, 1, d))
        self.pos = nn.Parameter(0.02 * torch.randn(1, 17, d))
        layer = nn.TransformerEncoderLayer(
            d, 4, 2 * d, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.body = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, CLASSES))

    def forward(self, img):
        t = self.patch(img).flatten(2).transpose(1, 2)
        t = torch.cat([self.cls.expand(len(t), -1, -1), t], 1) + self.pos
        return self.head(self.body(t)[:, 0])


test_x, test_y = stripes(1500, src)
torch.manual_seed(arg.seed)
vit = ViT()
opt = torch.optim.Adam(vit.parameters(), lr=1e-3 if arg.twin else 5e-2)
for k in range(400):
    x, y = stripes(48)
    loss = F.cross_entropy(vit(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if k % 50 == 49:
        print(k + 1, loss.item())

vit.eval()
with torch.no_grad():
    print("final:", F.cross_entropy(vit(test_x), test_y).item())
