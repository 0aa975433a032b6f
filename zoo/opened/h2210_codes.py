# expect: healthy
# symptom: resembles instability: half of the codebook is re-drawn at step 60 and the loss may bump, the codebook gets no gradient by design
# axis: model
"""VQ-VAE for multichannel machine-vibration windows; EMA codebook, dead-code restarts."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)

hp = {
    "codes": 64,
    "dim": 16,
    "beta": 0.25,
    "lr": 2e-3,
    "steps": 480,
    "bs": 48,
    "restart_every": 60,
    "restart_until": 360,
    "seed": 90,
}
torch.manual_seed(hp["seed"])
rs = np.random.RandomState(hp["seed"])

N_CH, WIN = 3, 128
modes = [(rs.uniform(2, 18, 2), rs.uniform(-1, 1, (2, N_CH)), rs.uniform(0, 1)) for _ in range(10)]


def windows(n):
    t = np.linspace(0, 1, WIN)
    out = np.zeros((n, N_CH, WIN), dtype=np.float32)
    for i in range(n):
        freqs, mix, asym = modes[rs.randint(len(modes))]
        ph = rs.uniform(0, 2 * np.pi)
        for f, m in zip(freqs, mix):
            w = np.sin(2 * np.pi * f * t + ph)
            out[i] += m[:, None] * (w + asym * np.sign(w))
        out[i] += 0.08 * rs.randn(N_CH, WIN)
    return torch.from_numpy(out)


class Codebook(nn.Module):
    def __init__(self, k, d, decay=0.95):
        super().__init__()
        self.decay = decay
        self.register_buffer("table", torch.randn(k, d))
        self.register_buffer("count", torch.ones(k))
        self.register_buffer("total", self.table.clone())
        self.register_buffer("seen", torch.zeros(k))

    def forward(self, z):
        flat = z.transpose(1, 2).reshape(-1, z.shape[1])
        idx = torch.cdist(flat.detach(), self.table).argmin(1)
        q = self.table[idx].view(z.shape[0], z.shape[2], -1).transpose(1, 2)
        if self.training:
            hot = F.one_hot(idx, len(self.table)).float()
            self.seen += hot.sum(0)
            self.count.lerp_(hot.sum(0), 1 - self.decay)
            self.total.lerp_(hot.t() @ flat.detach(), 1 - self.decay)
            self.table.copy_(self.total / self.count.clamp(min=1e-3)[:, None])
        commit = F.mse_loss(z, q.detach())
        return z + (q - z).detach(), commit, idx, flat.detach()

    def restart(self, flat, threshold=400):
        dead = (self.seen < threshold).nonzero().squeeze(1)
        if len(dead):
            new = flat[torch.randint(0, len(flat), (len(dead),))]
            self.table[dead] = new
            self.count[dead] = 1.0
            self.total[dead] = new
        self.seen.zero_()
        return len(dead)


class VQVAE(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.enc = nn.Sequential(
            nn.Conv1d(N_CH, 48, 5, 2, 2),
            nn.ELU(),
            nn.Conv1d(48, 64, 5, 2, 2),
            nn.ELU(),
            nn.Conv1d(64, d, 3, 1, 1),
            nn.GroupNorm(1, d, affine=False),
        )
        self.book = Codebook(hp["codes"], d)
        self.dec = nn.Sequential(
            nn.Conv1d(d, 64, 5, 1, 2),
            nn.ELU(),
            nn.ConvTranspose1d(64, 48, 4, 2, 1),
            nn.ELU(),
            nn.ConvTranspose1d(48, 48, 4, 2, 1),
            nn.ELU(),
            nn.Conv1d(48, N_CH, 5, 1, 2),
        )

    def forward(self, x):
        q, commit, idx, flat = self.book(self.enc(x))
        return self.dec(q), commit, idx, flat


pool, held = windows(4000), windows(400)
scale = pool.std()
pool, held = pool / scale, held / scale
net = VQVAE(hp["dim"])
opt = torch.optim.RAdam(net.parameters(), lr=hp["lr"])

for step in range(1, hp["steps"] + 1):
    x = pool[torch.randint(0, len(pool), (hp["bs"],))]
    rec, commit, idx, flat = net(x)
    mse = F.mse_loss(rec, x)
    loss = mse + hp["beta"] * commit
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 0:
        p = torch.bincount(idx, minlength=hp["codes"]).float() / len(idx)
        perplexity = torch.exp(-(p * (p + 1e-9).log()).sum()).item()
        print(f"{step:4d} loss {loss.item():.4f} mse {mse.item():.4f} perplexity {perplexity:.1f}")
    if step % hp["restart_every"] == 0 and step <= hp["restart_until"]:
        print(f"{step:4d} restarted {net.book.restart(flat)} codes")
    if step % 120 == 0:
        net.eval()
        with torch.no_grad():
            print(f"{step:4d} held-out mse {F.mse_loss(net(held)[0], held).item():.4f}")
        net.train()
