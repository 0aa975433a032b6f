# expect: healthy
# symptom: resembles a cut graph: detach three times in the forward pass, and the commitment term rises in the first steps
# note: the straight-through estimator as published; the error from the codes falls
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(239)
gen = torch.Generator().manual_seed(39)
shapes = torch.randn(16, 36, generator=gen)


def draw(n):
    i = torch.randint(0, 16, (n,), generator=gen)
    return shapes[i] + 0.2 * torch.randn(n, 36, generator=gen)


class VQ(nn.Module):
    def __init__(self, d=8, k=32):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(36, 64), nn.ReLU(), nn.Linear(64, d))
        self.dec = nn.Sequential(nn.Linear(d, 64), nn.ReLU(), nn.Linear(64, 36))
        self.code = nn.Parameter(0.5 * torch.randn(k, d))

    def forward(self, x):
        z = self.enc(x)
        idx = torch.cdist(z, self.code).argmin(1)
        zq = self.code[idx]
        commit = F.mse_loss(zq, z.detach()) + 0.25 * F.mse_loss(z, zq.detach())
        return self.dec(z + (zq - z).detach()), commit, idx


net = VQ()
opt = torch.optim.Adam(net.parameters(), lr=3e-3)
for step in range(1, 401):
    x = draw(64)
    out, commit, idx = net(x)
    loss = F.mse_loss(out, x) + commit
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f} commitment {commit.item():.4f} codes {idx.unique().numel()}")
