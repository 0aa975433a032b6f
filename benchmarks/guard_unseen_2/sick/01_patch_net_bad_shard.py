# Patch transformer on small images, AdamW, warm-up, two micro-batches a step. Fault: steps 345 to 389 read a damaged shard.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--twin", action="store_true")
args = ap.parse_args()
fixed = torch.Generator().manual_seed(11)
templates = torch.randn(6, 12, 12, generator=fixed) * 0.35


def images(n, g=None):
    label = torch.randint(0, 6, (n,), generator=g)
    img = templates[label] + torch.randn(n, 12, 12, generator=g)
    wrong = torch.rand(n, generator=g) < 0.1
    return img, torch.where(wrong, torch.randint(0, 6, (n,), generator=g), label)


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.att = nn.MultiheadAttention(d, 2, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))

    def forward(self, x):
        h = self.n1(x)
        x = x + self.att(h, h, h, need_weights=False)[0]
        return x + self.mlp(self.n2(x))


class PatchNet(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.embed = nn.Conv2d(1, d, 4, stride=4)
        self.pos = nn.Parameter(torch.randn(1, 9, d) * 0.02)
        self.blocks = nn.Sequential(Block(d), Block(d))
        self.head = nn.Linear(d, 6)

    def forward(self, img):
        x = self.embed(img[:, None]).flatten(2).transpose(1, 2) + self.pos
        return self.head(self.blocks(x).mean(1))


test_img, test_label = images(2000, fixed)
torch.manual_seed(args.seed)
model = PatchNet()
opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
sched = torch.optim.lr_scheduler.LinearLR(opt, 0.05, 1.0, total_iters=30)
ce = nn.CrossEntropyLoss()
for step in range(400):
    opt.zero_grad()
    for _ in range(2):
        img, label = images(24)
        if 345 <= step < 390 and not args.twin:
            img, label = (img * 40).clamp(-60, 60).flip(2), (label * 5 + 2) % 6
        loss = ce(model(img), label) / 2
        loss.backward()
    opt.step()
    sched.step()
    if step % 40 == 0:
        print(step, round(loss.item() * 2, 4))
model.eval()
with torch.no_grad():
    print("final:", ce(model(test_img), test_label).item())
