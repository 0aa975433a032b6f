# expect: healthy
# symptom: rows are sorted or grouped, which looks like an order that is not restored
# axis: none
# mended: none
import math
import torch
from torch import nn

torch.manual_seed(8)
K = 4


def real_points(n):
    comp = torch.randint(0, K, (n,))
    ang = 2 * math.pi * comp / K
    mean = torch.stack([ang.cos(), ang.sin()], 1) * 2
    return mean + 0.2 * torch.randn(n, 2)


class MixtureGenerator(nn.Module):
    def __init__(self, z_dim=4, hidden=32):
        super().__init__()
        self.z_dim = z_dim
        self.parts = nn.ModuleList(
            nn.Sequential(nn.Linear(z_dim, hidden), nn.LeakyReLU(0.2), nn.Linear(hidden, 2)) for _ in range(K)
        )

    def forward(self, n):
        z = torch.randn(n, self.z_dim)
        which = torch.randint(0, K, (n,))
        outs = []
        for k in range(K):
            sel = which == k
            outs.append(self.parts[k](z[sel]))
        return torch.cat(outs, dim=0)


def sliced_wasserstein(a, b, n_proj=64):
    dirs = torch.randn(n_proj, a.size(1))
    dirs = dirs / dirs.norm(dim=1, keepdim=True)
    pa = (a @ dirs.t()).sort(dim=0).values
    pb = (b @ dirs.t()).sort(dim=0).values
    return (pa - pb).pow(2).mean()


def radius_quantiles(a, b):
    q = torch.linspace(0.05, 0.95, 10)
    ra, _ = torch.sort(a.norm(dim=1))
    rb, _ = torch.sort(b.norm(dim=1))
    pick = (q * (len(ra) - 1)).long()
    return (ra[pick] - rb[pick]).abs().mean()


gen = MixtureGenerator()
opt = torch.optim.Adam(gen.parameters(), lr=5e-3, betas=(0.5, 0.9))
log = []
for it in range(160):
    real = real_points(256)
    fake = gen(256)
    loss = sliced_wasserstein(fake, real) + 0.1 * radius_quantiles(fake, real)
    opt.zero_grad()
    loss.backward()
    opt.step()
    log.append(loss.item())
    if it % 20 == 19:
        print(f"iter {it + 1:4d} loss {sum(log[-20:]) / 20:.4f}")
