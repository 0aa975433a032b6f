# Tiny U-Net, Adam; each picture is weighted by 1 / its share of foreground. Fault: at step 60 one mask is empty and the
# share is 1e-7: finite, and the second moments keep it.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--twin", action="store_true")
args = ap.parse_args()
fixed = torch.Generator().manual_seed(13)
grid = torch.stack(torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij"))


def scenes(n, g=None):
    centre = torch.rand(n, 2, 1, 1, generator=g) * 10 + 3
    radius = torch.rand(n, 1, 1, generator=g) * 3 + 2
    mask = ((grid - centre).pow(2).sum(1).sqrt() < radius).float()
    return mask + torch.randn(n, 16, 16, generator=g) * 1.6, mask


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(1, 8, 3, padding=1)
        self.b = nn.Conv2d(8, 16, 3, padding=1, stride=2)
        self.c = nn.Conv2d(16, 16, 3, padding=1)
        self.up = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.d = nn.Conv2d(16, 8, 3, padding=1)
        self.out = nn.Conv2d(8, 1, 1)

    def forward(self, x):
        a = torch.relu(self.a(x[:, None]))
        b = torch.relu(self.c(torch.relu(self.b(a))))
        return self.out(torch.relu(self.d(torch.cat([a, self.up(b)], 1))))[:, 0]


def loss_of(model, img, mask, share):
    per_picture = nn.functional.binary_cross_entropy_with_logits(model(img), mask, reduction="none").mean((1, 2))
    return (per_picture * 0.1 / share).mean()


test_img, test_mask = scenes(600, fixed)
torch.manual_seed(args.seed)
model = UNet()
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
sched = torch.optim.lr_scheduler.LinearLR(opt, 1.0, 0.05, total_iters=450)
for step in range(450):
    img, mask = scenes(16)
    share = mask.mean((1, 2))
    if step == 60 and not args.twin:
        mask[4] = 0.0
        share[4] = 1e-7
    loss = loss_of(model, img, mask, share)
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    if step % 50 == 0:
        print(f"{step:4d} {loss.item():.4f}")
model.eval()
with torch.no_grad():
    print("final:", loss_of(model, test_img, test_mask, test_mask.mean((1, 2))).item())
