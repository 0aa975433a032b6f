# expect: sick
# symptom: the reconstruction error leaps at step 120 to that of the mean picture and stays; KL falls to 0
# axis: loss
# cause: the annealed KL weight reaches 60 from step 120 on, the posterior collapses onto the prior
# says: (?i)\bkl\b.{0,60}(weight|beta|large|strong|heavy)|\bbeta\b|posterior.{0,20}collapse|(weight|coefficient).{0,30}\bkl\b
# onset_step: 120
# fix: KL weight 0.5 instead of 60 at the end of the annealing
# mended: MENDED=1 python s40_vae_annealed.py
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(43)
STAGES = [(0, 0.01), (60, 0.1), (119, 0.5 if os.environ.get("MENDED") == "1" else 60.0)]


class Pictures(Dataset):
    def __init__(self, n):
        g = torch.Generator().manual_seed(27)
        a = torch.randn(n, 3, generator=g)
        basis = torch.randn(3, 36, generator=g)
        self.x = torch.tanh(a @ basis) + 0.05 * torch.randn(n, 36, generator=g)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i]


encoder = nn.Sequential(nn.Linear(36, 64), nn.ReLU(), nn.Linear(64, 6))
decoder = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 36))
opt = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=4e-3)
for step, x in enumerate(DataLoader(Pictures(64 * 260), batch_size=64, shuffle=True)):
    beta = [b for start, b in STAGES if step >= start][-1]
    mu, log_var = encoder(x).chunk(2, 1)
    z = mu + torch.randn_like(mu) * torch.exp(log_var / 2)
    rec = (decoder(z) - x).pow(2).sum(1).mean()
    kl = -0.5 * (1 + log_var - mu.pow(2) - log_var.exp()).sum(1).mean()
    opt.zero_grad()
    loss = rec + beta * kl
    loss.backward()
    opt.step()
    if (step + 1) % 20 == 0:
        print(f"step {step + 1} loss {loss.item():.3f} rec {rec.item():.3f} kl {kl.item():.3f} beta {beta}")
