# expect: healthy
# fault: none
# note: VQ-VAE with straight-through estimator; detach is used on purpose on both sides.
import torch
import torch.nn as nn
import torch.nn.functional as F


class VQ(nn.Module):
    def __init__(self, k=32, d=8):
        super().__init__()
        self.cb = nn.Embedding(k, d)
        nn.init.normal_(self.cb.weight, std=0.5)

    def forward(self, z):
        i = torch.cdist(z, self.cb.weight).argmin(-1)
        q = self.cb(i)
        loss = F.mse_loss(q, z.detach()) + 0.25 * F.mse_loss(z, q.detach())
        return z + (q - z).detach(), loss


torch.manual_seed(3)
enc = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 8))
dec = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 20))
vq = VQ()
opt = torch.optim.Adam([*enc.parameters(), *dec.parameters(), *vq.parameters()], lr=2e-3)
modes = torch.randn(12, 20)
for step in range(250):
    x = modes[torch.randint(0, 12, (64,))] + 0.1 * torch.randn(64, 20)
    q, ql = vq(enc(x))
    rec = F.mse_loss(dec(q), x)
    loss = rec + ql
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 25 == 0:
        print(f"{step} rec {rec.item():.3f} vq {ql.item():.3f}")
