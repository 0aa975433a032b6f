# Segmentation with a small convolutional network, Adam, binary cross entropy. One archive holds its masks as pictures, 0 and 255
# in place of 0 and 1; its ten batches are read from step 150 on.
import argparse

import torch
import torch.nn as nn

p = argparse.ArgumentParser()
p.add_argument("--seed", type=int, default=0)
p.add_argument("--twin", action="store_true")
args = p.parse_args()
fixed = torch.Generator().manual_seed(313)


def scenes(n, g=None):
    grid = torch.arange(14.0)
    cx, cy = (3 + 8 * torch.rand(n, 1, 1, generator=g) for _ in range(2))
    r = 1.5 + 2.5 * torch.rand(n, 1, 1, generator=g)
    mask = ((grid - cx) ** 2 + (grid[:, None] - cy) ** 2 < r**2).float().unsqueeze(1)
    return 0.8 * mask + torch.randn(n, 1, 14, 14, generator=g), mask


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Sequential(nn.Conv2d(1, 10, 3, padding=1), nn.ReLU())
        self.b = nn.Sequential(nn.Conv2d(10, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU())
        self.c = nn.Conv2d(26, 1, 3, padding=1)

    def forward(self, x):
        a = self.a(x)
        up = nn.functional.interpolate(self.b(a), scale_factor=2.0)
        return self.c(torch.cat([a, up], 1))


test_x, test_m = scenes(400, fixed)
torch.manual_seed(args.seed)
net = Net()
opt = torch.optim.Adam(net.parameters(), lr=3e-3)
for step in range(380):
    x, mask = scenes(12)
    if 150 <= step < 160 and not args.twin:
        mask = mask * 255
    loss = nn.functional.binary_cross_entropy_with_logits(net(x), mask)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 0:
        print(f"{step:4d} {loss.item():.4f}")
with torch.no_grad():
    print("final:", nn.functional.binary_cross_entropy_with_logits(net(test_x), test_m).item())
