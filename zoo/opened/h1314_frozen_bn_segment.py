# expect: healthy
# symptom: the network is put into eval mode before the fine-tuning loop and stays there; the optimizer holds only adapters, normalisation affine parameters and the mask head
# axis: none
# mended: none
import argparse
import os

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)


class Cells(Dataset):
    """Microscope like fields of round cells; `stain` changes the look of the images."""

    def __init__(self, n, size, seed, stain):
        g = torch.Generator().manual_seed(seed)
        ax = torch.arange(size).float()
        yy, xx = torch.meshgrid(ax, ax, indexing="ij")
        self.x, self.m = torch.zeros(n, 3, size, size), torch.zeros(n, 1, size, size)
        for i in range(n):
            for _ in range(int(torch.randint(2, 5, (1,), generator=g))):
                u = torch.rand(3, generator=g)
                d = ((xx - u[0] * size) ** 2 + (yy - u[1] * size) ** 2).sqrt()
                self.m[i, 0] = torch.maximum(self.m[i, 0], (d < 3 + 3 * u[2]).float())
            body = torch.tensor([[0.8, 0.3, 0.6], [0.3, 0.7, 0.4]][stain])[:, None, None]
            back = torch.tensor([[0.9, 0.9, 0.9], [0.25, 0.3, 0.5]][stain])[:, None, None]
            img = self.m[i] * body + (1 - self.m[i]) * back
            self.x[i] = img + 0.15 * torch.randn(img.shape, generator=g)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.m[i]


class ConvBN(nn.Module):
    def __init__(self, a, b):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(a, b, 3, padding=1, bias=False), nn.BatchNorm2d(b)
        self.adapter = None

    def forward(self, x):
        h = F.relu(self.bn(self.conv(x)))
        return h if self.adapter is None else h + self.adapter(h)


class UNet(nn.Module):
    def __init__(self, w=16):
        super().__init__()
        self.a, self.b, self.c = ConvBN(3, w), ConvBN(w, 2 * w), ConvBN(2 * w, 2 * w)
        self.d = ConvBN(3 * w, w)
        self.drop = nn.Dropout2d(0.1)
        self.mask = nn.Conv2d(w, 1, 1)

    def forward(self, x):
        a = self.a(x)
        c = self.c(self.b(F.max_pool2d(a, 2)))
        return self.mask(self.drop(self.d(torch.cat([F.interpolate(c, scale_factor=2), a], 1))))


def add_adapters(net, r=4):
    for m in net.modules():
        if isinstance(m, ConvBN):
            k = m.conv.out_channels
            m.adapter = nn.Sequential(nn.Conv2d(k, r, 1), nn.ReLU(), nn.Conv2d(r, k, 1))
            nn.init.zeros_(m.adapter[2].weight)
            nn.init.zeros_(m.adapter[2].bias)


def seg_loss(logit, m):
    p = logit.sigmoid()
    dice = 1 - (2 * (p * m).sum((1, 2, 3)) + 1) / (p.sum((1, 2, 3)) + m.sum((1, 2, 3)) + 1)
    return F.binary_cross_entropy_with_logits(logit, m) + dice.mean()


@torch.no_grad()
def iou(net, data):
    p = net(data.x) > 0
    t = data.m > 0.5
    return ((p & t).sum() / (p | t).sum()).item()


def train(net, params, data, epochs, lr, batch, tag):
    opt = torch.optim.AdamW(params, lr=lr, weight_decay=1e-4)
    loader, step = DataLoader(data, batch, shuffle=True, drop_last=True), 0
    for _ in range(epochs):
        for x, m in loader:
            loss = seg_loss(net(x), m)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 15 == 0:
                print(f"[{tag}] step {step} loss {loss.item():.4f}", flush=True)
            step += 1


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--size", type=int, default=24)
    ap.add_argument("--batch", type=int, default=16)
    ap.add_argument("--adapt-batch", type=int, default=4)
    ap.add_argument("--lr", type=float, default=2e-3)
    a = ap.parse_args()
    torch.manual_seed(19)
    net = UNet()
    net.train()
    train(net, net.parameters(), Cells(320, a.size, 1, 0), 7, a.lr, a.batch, "base")
    net.eval()
    test = Cells(100, a.size, 4, 1)
    print(f"[adapt] iou before {iou(net, test):.3f}")
    net.requires_grad_(False)
    add_adapters(net)
    chosen = [
        p for m in net.modules() if isinstance(m, ConvBN) for p in (*m.adapter.parameters(), m.bn.weight, m.bn.bias)
    ] + list(net.mask.parameters())
    for p in chosen:
        p.requires_grad_(True)
    train(net, chosen, Cells(120, a.size, 3, 1), 10, a.lr, a.adapt_batch, "adapt")
    print(f"[adapt] iou after {iou(net, test):.3f}")


if __name__ == "__main__":
    main()
