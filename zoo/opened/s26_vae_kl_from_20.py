# expect: sick
# symptom: from step 20 on the loss sinks without end below zero, the latent means run away, then NaN; a lower rate only delays it
# axis: loss
# cause: the KL term enters the loss with the wrong sign (rec - beta * kl), so it is maximised
# says: (?i)\bsign\b|subtract|rec - |unbounded|maximi[sz]
# onset_step: 20
# fix: rec + beta * kl
# mended: MENDED=1 python s26_vae_kl_from_20.py
import os

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(27)
SIGN = 1.0 if os.environ.get("MENDED") == "1" else -1.0


class VAE(nn.Module):
    def __init__(self, d=20, z=4):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(d, 48), nn.ELU(), nn.Linear(48, 2 * z))
        self.dec = nn.Sequential(nn.Linear(z, 48), nn.ELU(), nn.Linear(48, d))

    def forward(self, x):
        mu, logvar = self.enc(x).chunk(2, -1)
        z = mu + (0.5 * logvar).exp() * torch.randn_like(mu)
        return self.dec(z), mu, logvar


g = torch.Generator().manual_seed(15)
code = torch.randn(64 * 240, 4, generator=g)
x = torch.tanh(code @ torch.randn(4, 20, generator=g)) + 0.1 * torch.randn(len(code), 20, generator=g)
vae = VAE()
opt = torch.optim.Adam(vae.parameters(), lr=3e-3)
for step, (xb,) in enumerate(DataLoader(TensorDataset(x), batch_size=64, shuffle=True), 1):
    out, mu, logvar = vae(xb)
    rec = F.mse_loss(out, xb, reduction="none").sum(1).mean()
    kl = 0.5 * (mu.square() + logvar.exp() - 1 - logvar).sum(1).mean()
    beta = 0.0 if step < 20 else 0.2
    loss = rec + SIGN * beta * kl
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 10 == 0:
        print(f"step {step} loss {loss.item():.4g} rec {rec.item():.4g} kl {kl.item():.4g}")
