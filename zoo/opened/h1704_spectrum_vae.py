# expect: healthy
# symptom: the total loss falls, turns at step 130 and rises for 170 steps; the KL term first climbs to large values
# axis: none
# mended: none
import os
import time

import numpy as np
import torch
import torch.nn as nn

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(71)

BINS, FRAMES, LATENT = 24, 16, 6
BATCH, STEPS = 48, 420
FREE_STEPS, RAMP_STEPS, BETA = 130, 170, 8.0
SIGMA = 0.15


def make_notes(n, seed):
    """Log spectra of short plucked notes: pitch, brightness, decay, vibrato."""
    rng = np.random.default_rng(seed)
    bins = np.arange(BINS)[:, None]
    t = np.arange(FRAMES)[None]
    out = np.empty((n, BINS, FRAMES), dtype=np.float32)
    for i in range(n):
        f0 = rng.uniform(3.0, 7.0)
        tilt, decay = rng.uniform(0.05, 0.2), rng.uniform(0.02, 0.15)
        vib = rng.uniform(0, 0.4) * np.sin(2 * np.pi * t / 8 + rng.uniform(0, 6.28))
        spec = np.cos(np.pi * bins / (f0 + vib)) ** 4 * np.exp(-tilt * bins - decay * t)
        out[i] = 2.0 * spec + SIGMA * rng.normal(size=spec.shape)
    return torch.from_numpy(out)


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(
            nn.Conv1d(BINS, 48, 3, padding=1),
            nn.GELU(),
            nn.Conv1d(48, 48, 4, stride=2, padding=1),
            nn.GELU(),
            nn.Flatten(),
            nn.Linear(48 * FRAMES // 2, 2 * LATENT),
        )
        self.dec_in = nn.Linear(LATENT, 48 * FRAMES // 2)
        self.dec = nn.Sequential(
            nn.GELU(), nn.ConvTranspose1d(48, 48, 4, stride=2, padding=1), nn.GELU(), nn.Conv1d(48, BINS, 3, padding=1)
        )

    def forward(self, x):
        mu, logvar = self.enc(x).chunk(2, dim=-1)
        logvar = logvar.clamp(-9, 3)
        z = mu + torch.exp(0.5 * logvar) * torch.randn_like(mu)
        h = self.dec_in(z).view(-1, 48, FRAMES // 2)
        return self.dec(h), mu, logvar


def beta_at(step):
    """No prior pressure at first, then a linear ramp: keeps the code from collapsing."""
    return BETA * min(1.0, max(0.0, (step - FREE_STEPS) / RAMP_STEPS))


def terms(model, x):
    out, mu, logvar = model(x)
    recon = ((out - x) ** 2).sum((1, 2)).mean() / (2 * SIGMA**2)
    kl_dims = 0.5 * (mu**2 + logvar.exp() - 1 - logvar)
    return recon, kl_dims.mean(0)


def main():
    data, val = make_notes(3000, 1), make_notes(300, 2)
    model = VAE()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    gen = torch.Generator().manual_seed(6)
    t0 = time.time()
    for step in range(STEPS):
        x = data[torch.randint(0, len(data), (BATCH,), generator=gen)]
        recon, kl_dims = terms(model, x)
        beta = beta_at(step)
        loss = recon + beta * kl_dims.sum()
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 200.0)
        opt.step()
        if step % 20 == 0:
            print(
                f"step {step} loss {loss.item():.2f} recon {recon.item():.2f} kl {kl_dims.sum().item():.2f} "
                f"beta {beta:.2f} t {time.time() - t0:.1f}"
            )
        if step % 105 == 104:
            with torch.no_grad():
                r, k = terms(model, val)
            print(f"val bound {(r + k.sum()).item():.2f} recon {r.item():.2f} used dims {(k > 0.1).sum().item()}")


if __name__ == "__main__":
    main()
