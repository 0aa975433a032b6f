# expect: healthy
# fault: a rising loss (the KL weight grows by plan)
# note: the KL weight goes from 0 to 1 over 120 steps, so the total loss rises for a time while the model improves; usual against posterior collapse.
import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 12))
        self.dec = nn.Sequential(nn.Linear(6, 48), nn.ReLU(), nn.Linear(48, 64))

    def forward(self, x):
        mu, logvar = self.enc(x).chunk(2, 1)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        return self.dec(z), mu, logvar


def bars(n):
    img = torch.zeros(n, 8, 8)
    r = torch.rand(n, 8) < 0.25
    img[r] = 1
    return img.flatten(1)


torch.manual_seed(2)
vae = VAE()
opt = torch.optim.Adam(vae.parameters(), lr=4e-3)
for step in range(220):
    x = bars(64)
    out, mu, lv = vae(x)
    rec = F.binary_cross_entropy_with_logits(out, x, reduction="sum") / len(x)
    kl = -0.5 * (1 + lv - mu.pow(2) - lv.exp()).sum() / len(x)
    beta = min(1.0, step / 120)
    loss = rec + beta * kl
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 0:
        print(f"{step} loss {loss.item():.2f} rec {rec.item():.2f} kl {kl.item():.2f}")
