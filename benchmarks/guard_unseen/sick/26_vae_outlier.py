# VAE, Adam. Fault: the batch of step 505 has outliers; exp(log-variance) overflows in the loss.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--twin", action="store_true")
args = ap.parse_args()
g = torch.Generator().manual_seed(211)
mix = torch.randn(4, 20, generator=g)


def draw(n):
    return torch.tanh(torch.randn(n, 4, generator=g) @ mix) + 0.3 * torch.randn(n, 20, generator=g)


data, held = draw(6000), draw(2000)


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 12))
        self.dec = nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 20))

    def loss(self, x, noise):
        mu, logvar = self.enc(x).chunk(2, 1)
        rec = self.dec(mu + noise * (0.5 * logvar).exp())
        kl = 0.5 * (mu**2 + logvar.exp() - 1 - logvar).sum(1)
        return (5 * (rec - x).pow(2).sum(1) + kl).mean()


torch.manual_seed(args.seed)
vae = VAE()
opt = torch.optim.Adam(vae.parameters(), lr=2e-3)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 800, eta_min=1e-4)
for step in range(800):
    xb = data[torch.randint(0, 6000, (64,))]
    if step == 505 and not args.twin:
        xb = xb * 300
    loss = vae.loss(xb, torch.randn(64, 6))
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    if step % 80 == 0:
        print(f"step {step} elbo {-loss.item():.3f}")
vae.eval()
with torch.no_grad():
    print("final:", vae.loss(held, torch.randn(2000, 6, generator=g)).item())
