# expect: healthy
# fault: a part that gets no gradient (straight-through codebook, detach)
# note: the codes are detached in both commitment terms on purpose; gradients pass by the straight-through trick.
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(1)


class VQ(nn.Module):
    def __init__(self, k=32, d=8):
        super().__init__()
        self.book = nn.Embedding(k, d)
        nn.init.uniform_(self.book.weight, -0.3, 0.3)

    def forward(self, z):
        idx = torch.cdist(z, self.book.weight).argmin(1)
        q = self.book(idx)
        loss = (q - z.detach()).pow(2).mean() + 0.25 * (z - q.detach()).pow(2).mean()
        return z + (q - z).detach(), loss


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.Sequential(nn.Linear(32, 48), nn.ReLU(), nn.Linear(48, 8))
        self.vq = VQ()
        self.d = nn.Sequential(nn.Linear(8, 48), nn.ReLU(), nn.Linear(48, 32))

    def forward(self, x):
        q, vql = self.vq(self.e(x))
        return self.d(q), vql


centres = torch.randn(12, 32)
m = Model()
with torch.no_grad():
    sample = centres[torch.randint(0, 12, (32,))] + 0.1 * torch.randn(32, 32)
    m.vq.book.weight.copy_(m.e(sample))
opt = torch.optim.Adam(
    [
        {"params": [*m.e.parameters(), *m.d.parameters()]},
        {"params": m.vq.parameters(), "lr": 2e-2},
    ],
    lr=2e-3,
)
for step in range(250):
    x = centres[torch.randint(0, 12, (64,))] + 0.1 * torch.randn(64, 32)
    rec, vql = m(x)
    rl = (rec - x).pow(2).mean()
    opt.zero_grad()
    (rl + vql).backward()
    opt.step()
    if step % 25 == 0:
        print(step, f"recon {rl.item():.4f} vq {vql.item():.4f}")
