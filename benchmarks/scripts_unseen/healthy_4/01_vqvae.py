# expect: healthy
# cause: none, a VQ-VAE with a straight-through estimator and a code-book that is updated by moving averages without gradient
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(1)


class Quantizer(nn.Module):
    def __init__(self, n_codes=64, dim=16, decay=0.95):
        super().__init__()
        self.decay = decay
        codes = torch.randn(n_codes, dim)
        self.register_buffer("codes", codes)
        self.register_buffer("counts", torch.ones(n_codes))
        self.register_buffer("sums", codes.clone())

    def forward(self, z):
        flat = z.permute(0, 2, 3, 1).reshape(-1, z.shape[1])
        dist = torch.cdist(flat.detach(), self.codes)
        idx = dist.argmin(1)
        if self.training:
            with torch.no_grad():
                hot = F.one_hot(idx, len(self.codes)).float()
                self.counts.mul_(self.decay).add_(hot.sum(0), alpha=1 - self.decay)
                self.sums.mul_(self.decay).add_(hot.t() @ flat, alpha=1 - self.decay)
                self.codes.copy_(self.sums / self.counts.clamp(min=1e-3).unsqueeze(1))
                dead = self.counts < 0.05
                if dead.any():
                    fresh = flat[torch.randint(0, len(flat), (int(dead.sum()),))]
                    self.codes[dead], self.sums[dead], self.counts[dead] = fresh, fresh, 1.0
        q = self.codes[idx].view(z.shape[0], z.shape[2], z.shape[3], -1).permute(0, 3, 1, 2)
        commit = F.mse_loss(z, q.detach())
        return z + (q - z).detach(), commit, idx


class VQVAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(
            nn.Conv2d(1, 32, 4, 2, 1), nn.ReLU(), nn.Conv2d(32, 32, 4, 2, 1), nn.ReLU(), nn.Conv2d(32, 16, 1)
        )
        self.vq = Quantizer()
        self.dec = nn.Sequential(
            nn.ConvTranspose2d(16, 32, 4, 2, 1),
            nn.ReLU(),
            nn.ConvTranspose2d(32, 32, 4, 2, 1),
            nn.ReLU(),
            nn.Conv2d(32, 1, 3, 1, 1),
        )

    def forward(self, x):
        q, commit, idx = self.vq(self.enc(x))
        return self.dec(q), commit, idx


def waves(n):
    g = torch.linspace(-1, 1, 16)
    yy, xx = torch.meshgrid(g, g, indexing="ij")
    a, k, p = 3.14 * torch.rand(n, 1, 1), 2 + 4 * torch.rand(n, 1, 1), 6.28 * torch.rand(n, 1, 1)
    return torch.sin(k * (xx * a.cos() + yy * a.sin()) + p).unsqueeze(1)


model = VQVAE()
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
for step in range(400):
    x = waves(32)
    recon, commit, idx = model(x)
    loss = F.mse_loss(recon, x) + 0.25 * commit
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 0 or step == 399:
        print(
            f"step {step} recon {F.mse_loss(recon, x).item():.4f} commit {commit.item():.4f} codes used {idx.unique().numel()}"
        )
