# expect: healthy
# fault: none
# note: WGAN with gradient penalty on a ring; losses are of either sign and need not fall.
import torch
from torch import nn

torch.manual_seed(26)
G = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
D = nn.Sequential(nn.Linear(2, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))
og = torch.optim.Adam(G.parameters(), lr=5e-4, betas=(0.0, 0.9))
od = torch.optim.Adam(D.parameters(), lr=5e-4, betas=(0.0, 0.9))


def real(n=64):
    t = torch.rand(n) * 6.283
    return torch.stack([t.cos(), t.sin()], 1) * 2


for it in range(80):
    for _ in range(3):
        r, f = real(), G(torch.randn(64, 8)).detach()
        a = torch.rand(64, 1)
        m = (a * r + (1 - a) * f).requires_grad_(True)
        (g,) = torch.autograd.grad(D(m).sum(), m, create_graph=True)
        dl = D(f).mean() - D(r).mean() + 10 * ((g.norm(dim=1) - 1) ** 2).mean()
        od.zero_grad()
        dl.backward()
        od.step()
    gl = -D(G(torch.randn(64, 8))).mean()
    og.zero_grad()
    gl.backward()
    og.step()
    if it % 10 == 0:
        print(it, f"d {dl.item():.3f} g {gl.item():.3f}")
