# expect: healthy
# symptom: ReduceLROnPlateau is stepped in each optimizer step
# axis: none
# mended: none
import argparse
import torch
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

torch.set_num_threads(1)
ap = argparse.ArgumentParser(description="fit a terrain patch with Fourier features")
ap.add_argument("--iters", type=int, default=400)
ap.add_argument("--side", type=int, default=20)
ap.add_argument("--bands", type=int, default=4)
a = ap.parse_args()
torch.manual_seed(53)


def terrain(side):
    g = torch.linspace(-1, 1, side)
    y, x = torch.meshgrid(g, g, indexing="ij")
    h = (
        torch.sin(3 * x) * torch.cos(2 * y)
        + 0.5 * torch.exp(-((x - 0.3) ** 2 + (y + 0.2) ** 2) / 0.05)
        + 0.2 * torch.sin(7 * x * y)
    )
    return torch.stack([x, y], -1).view(-1, 2), h.view(-1, 1)


class FourierMLP(nn.Module):
    def __init__(self, bands, width=48):
        super().__init__()
        self.register_buffer("freq", 3.1416 * 2.0 ** torch.arange(bands) / 2)
        self.net = nn.Sequential(
            nn.Linear(4 * bands, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1)
        )

    def forward(self, p):
        w = (p.unsqueeze(-1) * self.freq).flatten(1)
        return self.net(torch.cat([w.sin(), w.cos()], 1))


points, height = terrain(a.side)
net = FourierMLP(a.bands)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
# all points in each iteration: one iteration is one epoch
scheduler = ReduceLROnPlateau(optimizer, factor=0.5, patience=40, threshold=1e-3, min_lr=1e-4)
for it in range(a.iters):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(net(points), height)
    loss.backward()
    optimizer.step()
    scheduler.step(loss.item())
    if it % 50 == 0 or it == a.iters - 1:
        psnr = -10 * torch.log10(loss.detach() / 4)
        print(f"{it:4d} mse {loss.item():.6f} psnr {psnr.item():.1f} lr {optimizer.param_groups[0]['lr']:.5f}")
