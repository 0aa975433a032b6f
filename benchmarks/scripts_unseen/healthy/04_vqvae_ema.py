# EXPECT: healthy
# FAULT: none
# ONSET: 1
# SAYS: none
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(3)


class EMAQuantizer(nn.Module):
    def __init__(self, n=16, d=8, decay=0.95):
        super().__init__()
        e = torch.randn(n, d) * 0.3
        self.register_buffer("codebook", e)
        self.register_buffer("count", torch.ones(n))
        self.register_buffer("total", e.clone())
        self.decay = decay

    def forward(self, z):
        dist = torch.cdist(z, self.codebook)
        k = dist.argmin(1)
        q = self.codebook[k]
        if self.training:
            with torch.no_grad():
                onehot = F.one_hot(k, len(self.codebook)).float()
                self.count.mul_(self.decay).add_(onehot.sum(0), alpha=1 - self.decay)
                self.total.mul_(self.decay).add_(onehot.T @ z, alpha=1 - self.decay)
                self.codebook.copy_(self.total / (self.count + 1e-3).unsqueeze(1))
        commit = F.mse_loss(z, q.detach())
        return z + (q - z).detach(), commit, k


enc = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8))
dec = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 32))
vq = EMAQuantizer()
modes = torch.randn(12, 32)
opt = torch.optim.Adam(list(enc.parameters()) + list(dec.parameters()), lr=2e-3)
for step in range(150):
    x = modes[torch.randint(0, 12, (128,))] + 0.1 * torch.randn(128, 32)
    z = enc(x)
    q, commit, k = vq(z)
    rec = F.mse_loss(dec(q), x)
    loss = rec + 0.25 * commit
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 25 == 0:
        print(f"{step} rec {rec.item():.4f} commit {commit.item():.4f} codes {k.unique().numel()}")
