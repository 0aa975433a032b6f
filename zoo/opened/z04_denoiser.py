# expect: healthy
# symptom: rows are changed on their way, which looks like a stored row that is overwritten
# axis: none
# mended: none
import numpy as np
import torch
from torch import nn

torch.manual_seed(8)
rng = np.random.default_rng(8)

# 300 points on a noisy 3-d surface lifted to 12 dims
latent = rng.normal(size=(300, 3)).astype(np.float32)
lift = rng.normal(size=(3, 12)).astype(np.float32)
table = np.tanh(latent @ lift)
weights = torch.from_numpy(rng.uniform(0.5, 1.5, size=300).astype(np.float32))


def batches(size):
    order = rng.permutation(len(table))
    for lo in range(0, len(order), size):
        idx = order[lo : lo + size]
        rows = table[idx]
        clean = torch.from_numpy(table[idx])
        rows += 0.1 * rng.standard_normal(rows.shape).astype(np.float32)
        rows[rng.random(rows.shape) < 0.25] = 0.0
        w = weights[torch.from_numpy(idx)]
        w /= w.mean()
        yield torch.from_numpy(rows), clean, w


class Denoiser(nn.Module):
    def __init__(self, d=12, h=32, z=4):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(d, h), nn.SiLU(), nn.Linear(h, z))
        self.dec = nn.Sequential(nn.Linear(z, h), nn.SiLU(), nn.Linear(h, d))

    def forward(self, x):
        return self.dec(self.enc(x))


net = Denoiser()
opt = torch.optim.AdamW(net.parameters(), lr=4e-3, weight_decay=1e-4)
for epoch in range(12):
    hist = []
    for noisy, clean, w in batches(30):
        err = (net(noisy) - clean).pow(2).mean(dim=1)
        loss = (w * err).mean()
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        hist.append(loss.item())
    print("epoch %2d  loss %.5f" % (epoch, float(np.mean(hist))))

with torch.no_grad():
    full = torch.from_numpy(table)
    print("clean reconstruction %.5f" % (net(full) - full).pow(2).mean().item())
