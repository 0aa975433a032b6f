# expect: healthy
# symptom: resembles a wrong KL weight or a diverging run: the total loss rises again and again (the KL weight is raised from 0 to 1 in three cycles) and the KL term is large at the start of each cycle
# axis: loss
# cause: none
# says: none
# onset_step: 0
# fix: none
# mended: not needed; the test ELBO improves from cycle to cycle (25.1, 22.6, 21.6; baseline 38.5) and 4 of 6 latent units stay in use
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(31)

S, LATENT, BATCH, STEPS, CYCLE = 16, 6, 64, 600, 200
YY, XX = torch.meshgrid(torch.arange(S).float(), torch.arange(S).float(), indexing="ij")


def make_images(n, g):
    cy = 4 + 8 * torch.rand(n, 1, 1, generator=g)
    cx = 4 + 8 * torch.rand(n, 1, 1, generator=g)
    rad = 1.5 + 2.5 * torch.rand(n, 1, 1, generator=g)
    ang = math.pi * torch.rand(n, 1, 1, generator=g)
    u = (XX - cx) * ang.cos() + (YY - cy) * ang.sin()
    v = -(XX - cx) * ang.sin() + (YY - cy) * ang.cos()
    p = torch.sigmoid(4 * (1 - (u / rad) ** 2 - (v / (0.5 * rad)) ** 2))
    return torch.bernoulli(p, generator=g)[:, None]


class VAE(nn.Module):
    def __init__(self, c=16):
        super().__init__()
        self.enc = nn.Sequential(
            nn.Conv2d(1, c, 4, 2, 1),
            nn.ReLU(),
            nn.Conv2d(c, 2 * c, 4, 2, 1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(2 * c * 16, 128),
            nn.ReLU(),
            nn.Linear(128, 2 * LATENT),
        )
        self.dec = nn.Sequential(
            nn.Linear(LATENT, 128),
            nn.ReLU(),
            nn.Linear(128, 2 * c * 16),
            nn.ReLU(),
            nn.Unflatten(1, (2 * c, 4, 4)),
            nn.ConvTranspose2d(2 * c, c, 4, 2, 1),
            nn.ReLU(),
            nn.ConvTranspose2d(c, 1, 4, 2, 1),
        )

    def forward(self, x):
        mu, logvar = self.enc(x).chunk(2, -1)
        logvar = logvar.clamp(-10, 4)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        logits = self.dec(z)
        rec = F.binary_cross_entropy_with_logits(logits, x, reduction="none").sum((1, 2, 3))
        kl = 0.5 * (mu.pow(2) + logvar.exp() - 1 - logvar)
        return rec.mean(), kl.mean(0)


def kl_weight(step):
    """Cyclical annealing: hold at zero, ramp up to the middle of a cycle, then hold at one."""
    return min(1.0, max(0.0, ((step - 1) % CYCLE - 50) / 80))


g = torch.Generator().manual_seed(5)
train, test = make_images(4000, g), make_images(400, g)
model = VAE()
opt = torch.optim.Adam(model.parameters(), lr=1.5e-3)

perm, at = torch.randperm(len(train)), 0
for step in range(1, STEPS + 1):
    if at + BATCH > len(perm):
        perm, at = torch.randperm(len(train)), 0
    x = train[perm[at : at + BATCH]]
    at += BATCH
    beta = kl_weight(step)
    rec, kl = model(x)
    loss = rec + beta * kl.sum()
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 20.0)
    opt.step()
    if step % 25 == 0 or step == 1:
        print(
            f"step {step:4d}  beta {beta:.2f}  loss {loss.item():.2f}  rec {rec.item():.2f}  kl {kl.sum().item():.2f}"
        )
    if step % CYCLE == 0:
        with torch.no_grad():
            rec_t, kl_t = model(test)
        print(f"  test -elbo {(rec_t + kl_t.sum()).item():.2f}  active units {(kl_t > 0.1).sum().item()}/{LATENT}")

p = train.mean(0).clamp(1e-4, 1 - 1e-4)
base = F.binary_cross_entropy(p.expand_as(test), test, reduction="none").sum((1, 2, 3)).mean().item()
print(f"final test -elbo {(rec_t + kl_t.sum()).item():.2f}  (pixel-mean baseline {base:.2f})")
