# expect: sick
# fault: L2 penalty far too large
# onset_step: 0
# says: (?i)(weight.?decay|decay|shrink|vanish|weights? .*(zero|small|collaps)|collaps|l2|penalty|regulari[sz]|norm|dominat)
# note: the hand-made L2 term is summed over all weights with a coefficient of 5.0 rather than 5e-4 and rules the loss, so that the VAE's weights go to zero.
import torch
from torch import nn


class VAE(nn.Module):
    def __init__(self, d=36, z=4):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(d, 64), nn.ReLU(), nn.Linear(64, 2 * z))
        self.dec = nn.Sequential(nn.Linear(z, 64), nn.ReLU(), nn.Linear(64, d))

    def forward(self, x):
        mu, lv = self.enc(x).chunk(2, -1)
        z = mu + torch.randn_like(mu) * (lv / 2).exp()
        kl = -0.5 * (1 + lv - mu**2 - lv.exp()).sum(-1).mean()
        return self.dec(z), kl


def l2_norm_penalty(model, coef=5.0):
    return coef * sum((p**2).sum() for n, p in model.named_parameters() if n.endswith("weight"))


torch.manual_seed(20)
F_ = torch.randn(4, 36)
vae = VAE()
opt = torch.optim.Adam(vae.parameters(), lr=3e-3)
history = {"rec": [], "kl": []}
for it in range(220):
    x = torch.tanh(torch.randn(64, 4) @ F_)
    out, kl = vae(x)
    rec = (out - x).pow(2).sum(-1).mean()
    loss = rec + 0.1 * kl + l2_norm_penalty(vae)
    opt.zero_grad()
    loss.backward()
    opt.step()
    history["rec"].append(rec.item())
    history["kl"].append(kl.item())
    if it % 20 == 0:
        print(f"it {it} rec {rec.item():.3f} kl {kl.item():.4f} total {loss.item():.3f}")
