# expect: healthy
# symptom: the loss is in the hundreds and RISES for a long stretch (steps 300 to 450); the KL goes from huge to small
# axis: none
# mended: none
import math
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(8)
rng = np.random.default_rng(8)
S, LATENT = 20, 8
WARM_START, WARM_END, STEPS = 250, 400, 700
BETA = 4.0


def make_glyphs(n):
    """Binary pictures of one ring or bar with random place, size and angle."""
    yy, xx = np.mgrid[0:S, 0:S]
    out = np.zeros((n, S, S), dtype=np.float32)
    for i in range(n):
        cy, cx = rng.uniform(6, 14, size=2)
        if rng.random() < 0.5:
            r = np.hypot(yy - cy, xx - cx)
            out[i] = np.abs(r - rng.uniform(3, 6)) < 1.0
        else:
            th = rng.uniform(0, math.pi)
            u = (xx - cx) * math.cos(th) + (yy - cy) * math.sin(th)
            v = -(xx - cx) * math.sin(th) + (yy - cy) * math.cos(th)
            out[i] = (np.abs(u) < rng.uniform(4, 7)) & (np.abs(v) < 1.4)
    return torch.from_numpy(out).view(n, -1)


class VAE(nn.Module):
    def __init__(self, hidden=192):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(S * S, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU())
        self.mu, self.logvar = nn.Linear(hidden, LATENT), nn.Linear(hidden, LATENT)
        self.dec = nn.Sequential(
            nn.Linear(LATENT, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU(), nn.Linear(hidden, S * S)
        )

    def forward(self, x):
        h = self.enc(x)
        mu, logvar = self.mu(h), self.logvar(h)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp() if self.training else mu
        return self.dec(z), mu, logvar


def elbo_terms(model, x):
    logits, mu, logvar = model(x)
    rec = F.binary_cross_entropy_with_logits(logits, x, reduction="none").sum(-1)
    kl = 0.5 * (mu.pow(2) + logvar.exp() - 1 - logvar).sum(-1)
    return rec.mean(), kl.mean()


def beta_at(step):
    return BETA * min(1.0, max(0.0, (step - WARM_START) / (WARM_END - WARM_START)))


@torch.no_grad()
def validate(model, x):
    model.eval()
    rec, kl = elbo_terms(model, x)
    model.train()
    return rec.item(), kl.item()


train, val = make_glyphs(6000), make_glyphs(600)
model = VAE()
opt = torch.optim.Adam(model.parameters(), lr=2e-3)

for step in range(STEPS):
    x = train[torch.randint(0, len(train), (128,))]
    rec, kl = elbo_terms(model, x)
    beta = beta_at(step)
    loss = rec + beta * kl
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 100.0)
    opt.step()
    if step % 25 == 0:
        print(f"step {step:4d} loss {loss.item():8.2f} rec {rec.item():8.2f} kl {kl.item():8.2f} beta {beta:.2f}")
    if step % 100 == 99:
        r, k = validate(model, val)
        print(f"   val rec {r:.2f} kl {k:.2f} objective {(r + BETA * k):.2f}")
