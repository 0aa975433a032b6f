# expect: sick
# symptom: the loss falls well for 200 steps, then jumps a hundredfold and the validation accuracy falls from 98 % to about 70 % and does not come back
# axis: data
# cause: the images of the second shard come as 0..255 and are not divided by 255, so the inputs are 255 times larger than those of the first shard
# says: 255|normali[sz]|(un)?scal(ed|e|ing)|(input|pixel|image|batch).{0,50}(range|magnitude|larger|scale|unit|outside|differ)|(range|magnitude|scale|units?).{0,50}(input|pixel|image|data)|input.{0,20}(shift|distribution)|distribution (shift|of the input)
# onset_step: 200
# fix: divide the images of the second shard by 255 as well
# mended: divides uint8 shards by 255
import os

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(42)
CLASSES, SIDE, PATCH = 6, 16, 4
prototypes = torch.rand(CLASSES, 3, SIDE, SIDE)


def make_shard(n, as_bytes):
    y = torch.randint(CLASSES, (n,))
    x = 0.35 * prototypes[y] + 0.65 * torch.rand(n, 3, SIDE, SIDE)
    if as_bytes:
        x = (x * 255).to(torch.uint8)
    return x, y


def to_input(x):
    if x.dtype == torch.uint8 and os.environ.get("MENDED") == "1":
        return x.float() / 255
    return x.float()


class MicroViT(nn.Module):
    def __init__(self, dim=48, depth=2, heads=4):
        super().__init__()
        n = (SIDE // PATCH) ** 2
        self.patch = nn.Conv2d(3, dim, PATCH, PATCH)
        self.cls = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos = nn.Parameter(0.02 * torch.randn(1, n + 1, dim))
        layer = nn.TransformerEncoderLayer(
            dim, heads, dim * 2, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.body = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, CLASSES)

    def forward(self, img):
        p = self.patch(img).flatten(2).transpose(1, 2)
        z = torch.cat([self.cls.expand(len(p), -1, -1), p], 1) + self.pos
        return self.head(self.norm(self.body(z))[:, 0])


shards = [make_shard(3200, False), make_shard(3200, True)]
val_x, val_y = make_shard(400, False)
vit = MicroViT()
opt = torch.optim.AdamW(vit.parameters(), lr=1e-3, weight_decay=0.05)
step = 0
for number, (images, labels) in enumerate(shards):
    for _ in range(2):  # two passes over each shard
        for idx in torch.randperm(len(images)).split(32):
            loss = F.cross_entropy(vit(to_input(images[idx])), labels[idx])
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 40 == 0 or step == 399:
                with torch.no_grad():
                    acc = (vit(val_x).argmax(1) == val_y).float().mean().item()
                print(f"shard {number} step {step} loss {loss.item():.3f} val acc {acc:.3f}")
            step += 1
