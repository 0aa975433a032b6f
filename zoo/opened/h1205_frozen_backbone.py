# expect: healthy
# symptom: train() is overridden so that the backbone with its batch norms stays in eval mode, most parameters never get a gradient and the optimizer holds only the head
# axis: none
# mended: none
"""Two parts: a backbone is trained on many classes, then a small dense head is fitted on top with few labelled pictures."""

import os
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(19)

SIZE, KINDS = 16, 10


def textures(n, gen, kinds=KINDS):
    """Gratings: the kind sets the angle, frequency is random; returns picture, kind, frequency."""
    y, x = torch.meshgrid(torch.arange(SIZE).float(), torch.arange(SIZE).float(), indexing="ij")
    k = torch.randint(0, kinds, (n,), generator=gen)
    f = torch.rand(n, generator=gen) * 1.0 + 0.5
    a = k.float() * torch.pi / kinds
    ph = torch.rand(n, generator=gen) * 6.28
    arg = (x * a.cos()[:, None, None] + y * a.sin()[:, None, None]) * f[:, None, None] + ph[:, None, None]
    return (arg.sin() + 0.5 * torch.randn(n, SIZE, SIZE, generator=gen))[:, None], k, f


class Backbone(nn.Sequential):
    def __init__(self):
        def unit(i, o):
            return [nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(), nn.MaxPool2d(2)]

        super().__init__(*unit(1, 24), *unit(24, 48), *unit(48, 64), nn.AdaptiveAvgPool2d(1), nn.Flatten())


class Transfer(nn.Module):
    def __init__(self, backbone):
        super().__init__()
        self.backbone = backbone
        for p in self.backbone.parameters():
            p.requires_grad_(False)
        self.head = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 1))

    def train(self, mode=True):
        super().train(mode)
        self.backbone.eval()
        return self

    def forward(self, x):
        with torch.no_grad():
            h = self.backbone(x)
        return self.head(h).squeeze(1)


def main():
    gen = torch.Generator().manual_seed(3)
    t0 = time.time()
    backbone, cls = Backbone(), nn.Linear(64, KINDS)
    opt = torch.optim.AdamW(list(backbone.parameters()) + list(cls.parameters()), lr=2e-3)
    for step in range(200):
        x, k, _ = textures(64, gen)
        loss = F.cross_entropy(cls(backbone(x)), k)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 25 == 0:
            print(f"pretrain {step:4d} loss {loss.item():.4f}", flush=True)

    x, _, f = textures(1500, gen)
    tx, _, tf = textures(500, gen)
    model = Transfer(backbone)
    model.train()
    opt = torch.optim.AdamW(model.head.parameters(), lr=3e-3, weight_decay=0.01)
    print(
        f"tuning {sum(p.numel() for p in model.head.parameters())} of {sum(p.numel() for p in model.parameters())} weights"
    )
    for step in range(400):
        idx = torch.randint(0, len(x), (64,), generator=gen)
        loss = F.smooth_l1_loss(model(x[idx]), f[idx], beta=0.2)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 25 == 0 or step == 399:
            print(f"step {step:4d} loss {loss.item():.4f}", flush=True)
    model.eval()
    with torch.no_grad():
        err = (model(tx) - tf).abs().mean().item()
    print(f"test abs error {err:.4f} (constant answer {(tf - tf.median()).abs().mean():.4f})   {time.time() - t0:.1f}s")


if __name__ == "__main__":
    main()
