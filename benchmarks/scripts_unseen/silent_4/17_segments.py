# expect: sick
# cause: The losses of 16 accumulated micro-batches are not divided by 16, so each SGD update is sixteen times as large as meant and the run rattles at a bad level.
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(9)
MICRO, ACCUM = 2, 16


def scene(n, size=16):
    """two-phase material: mark the pixels of the bright inclusions under uneven light"""
    g = torch.linspace(-1, 1, size)
    yy, xx = torch.meshgrid(g, g, indexing="ij")
    mask = torch.zeros(n, size, size)
    for _ in range(3):
        cx, cy = (1.6 * torch.rand(n, 1, 1) - 0.8), (1.6 * torch.rand(n, 1, 1) - 0.8)
        r = 0.15 + 0.2 * torch.rand(n, 1, 1)
        mask = torch.maximum(mask, ((xx - cx) ** 2 + (yy - cy) ** 2 < r**2).float())
    slope = torch.randn(n, 2, 1, 1)
    light = slope[:, 0] * xx + slope[:, 1] * yy + torch.randn(n, 1, 1)
    return (mask + light + 0.35 * torch.randn(n, size, size)).unsqueeze(1), mask.unsqueeze(1)


class Net(nn.Module):
    def __init__(self, c=20):
        super().__init__()
        self.layers = nn.ModuleList(
            [
                nn.Conv2d(1, c, 3, padding=1),
                nn.Conv2d(c, c, 3, padding=2, dilation=2),
                nn.Conv2d(c, c, 3, padding=2, dilation=2),
            ]
        )
        self.last = nn.Conv2d(c, 1, 1)

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return self.last(x)


images, masks = scene(800)
val_images, val_masks = scene(120)
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
opt.zero_grad()
updates = 0
shown = []
for it in range(200 * ACCUM):
    k = torch.randint(0, len(images), (MICRO,))
    loss = F.binary_cross_entropy_with_logits(net(images[k]), masks[k])
    loss.backward()
    shown.append(loss.item())
    if (it + 1) % ACCUM == 0:
        opt.step()
        opt.zero_grad()
        updates += 1
        if updates % 25 == 0:
            with torch.no_grad():
                out = net(val_images)
                val = F.binary_cross_entropy_with_logits(out, val_masks).item()
                inter = ((out > 0) & (val_masks > 0.5)).sum().item()
                union = ((out > 0) | (val_masks > 0.5)).sum().item()
            print(f"update {updates} train {sum(shown) / len(shown):.4f} val {val:.4f} IoU {inter / max(union, 1):.3f}")
            shown.clear()
