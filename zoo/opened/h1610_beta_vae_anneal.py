# expect: healthy
# symptom: the total loss is large (179, later tens) and climbs by half again in every cycle (24 to 40) while the KL falls, a saw-tooth that does not go down any more
# axis: none
# mended: none
import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(9)
rng = np.random.default_rng(9)

SIZE, LATENT, STEPS, BATCH, PERIOD = 16, 6, 600, 64, 200


def blobs(n):
    """Binary images of one soft ellipse each: place, axes and angle are the factors."""
    yy, xx = np.mgrid[0:SIZE, 0:SIZE]
    cx, cy = rng.uniform(4, 12, (2, n, 1, 1))
    a, b = rng.uniform(1.5, 4.5, (2, n, 1, 1))
    th = rng.uniform(0, math.pi, (n, 1, 1))
    u = (xx - cx) * np.cos(th) + (yy - cy) * np.sin(th)
    v = -(xx - cx) * np.sin(th) + (yy - cy) * np.cos(th)
    p = 1 / (1 + np.exp(4 * ((u / a) ** 2 + (v / b) ** 2 - 1)))
    return torch.from_numpy((p > rng.random(p.shape) * 0.2 + 0.4).astype(np.float32)).flatten(1)


class VAE(nn.Module):
    def __init__(self, h=256):
        super().__init__()
        d = SIZE * SIZE
        self.enc = nn.Sequential(nn.Linear(d, h), nn.ReLU(), nn.Linear(h, h), nn.ReLU(), nn.Linear(h, 2 * LATENT))
        self.dec = nn.Sequential(nn.Linear(LATENT, h), nn.ReLU(), nn.Linear(h, h), nn.ReLU(), nn.Linear(h, d))

    def forward(self, x):
        mu, logvar = self.enc(x).chunk(2, dim=1)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        return self.dec(z), mu, logvar


def terms(logits, x, mu, logvar):
    rec = F.binary_cross_entropy_with_logits(logits, x, reduction="sum") / len(x)
    kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(1).mean()
    return rec, kl


def beta_at(step, top=4.0):
    """Cyclical annealing: half a period from 0 to top, then the rest of the period at top."""
    return top * min(1.0, (step % PERIOD) / (PERIOD * 0.5))


def main():
    data, held = blobs(6000), blobs(500)
    model = VAE()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step in range(STEPS):
        x = data[torch.randint(0, len(data), (BATCH,))]
        logits, mu, logvar = model(x)
        rec, kl = terms(logits, x, mu, logvar)
        beta = beta_at(step)
        loss = rec + beta * kl
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0 or step == STEPS - 1:
            print(
                f"step {step:4d}  loss {loss.item():8.3f}  rec {rec.item():7.3f}  kl {kl.item():6.3f}  beta {beta:.2f}"
            )
        if (step + 1) % PERIOD == 0:
            with torch.no_grad():
                rec, kl = terms(*((lambda o: (o[0], held, o[1], o[2]))(model(held))))
            print(
                f"cycle end: held-out rec {rec.item():.3f}  kl {kl.item():.3f}  beta-ELBO {-(rec + beta * kl).item():.3f}"
            )


if __name__ == "__main__":
    main()
