# expect: healthy
# fault: the same batch each step
# note: a SIREN fitted to all pixels of one image: the same full batch each step is the task.
import math
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(73)


class Sine(nn.Module):
    def __init__(self, i, o, w0=15.0, first=False):
        super().__init__()
        self.lin, self.w0 = nn.Linear(i, o), w0
        bound = 1 / i if first else math.sqrt(6 / i) / w0
        nn.init.uniform_(self.lin.weight, -bound, bound)

    def forward(self, x):
        return torch.sin(self.w0 * self.lin(x))


n = 28
g = torch.linspace(-1, 1, n)
yy, xx = torch.meshgrid(g, g, indexing="ij")
coords = torch.stack([yy, xx], -1).view(-1, 2)
photo = (torch.sin(8 * xx * yy) + (xx**2 + yy**2 < 0.4).float() - 0.5).view(-1, 1)
siren = nn.Sequential(Sine(2, 48, first=True), Sine(48, 48), nn.Linear(48, 1))
opt = torch.optim.Adam(siren.parameters(), lr=2e-3)
for it in range(200):
    loss = (siren(coords) - photo).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if it % 20 == 0:
        print(it, f"mse {loss.item():.5f} psnr {-10 * math.log10(loss.item()):.2f}")
