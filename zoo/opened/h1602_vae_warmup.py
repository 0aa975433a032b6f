# expect: healthy
# symptom: after the first hundred steps the total loss rises for a long time and ends above its minimum
# axis: none
# mended: none
import os
import time
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(32)

SIZE, LATENT, BATCH, STEPS, WARM = 16, 8, 96, 700, 450


def strokes(n, g):
    """Binary 16x16 pictures: one bar and one disc at random places."""
    u = torch.arange(SIZE).float()
    yy, xx = torch.meshgrid(u, u, indexing="ij")
    cx, cy, r = (2 + 12 * torch.rand(n, 1, 1, generator=g) for _ in range(3))
    disc = ((xx - cx) ** 2 + (yy - cy) ** 2) < (1.5 + r / 6) ** 2
    px, ang = 2 + 12 * torch.rand(n, 1, 1, generator=g), 3.14 * torch.rand(n, 1, 1, generator=g)
    bar = ((xx - px) * ang.cos() + (yy - 8) * ang.sin()).abs() < 0.9
    return (disc | bar).float()[:, None]


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(
            nn.Conv2d(1, 24, 4, 2, 1),
            nn.SiLU(),
            nn.Conv2d(24, 48, 4, 2, 1),
            nn.SiLU(),
            nn.Flatten(),
            nn.Linear(48 * 16, 128),
            nn.SiLU(),
            nn.Linear(128, 2 * LATENT),
        )
        self.dec = nn.Sequential(
            nn.Linear(LATENT, 128),
            nn.SiLU(),
            nn.Linear(128, 48 * 16),
            nn.SiLU(),
            nn.Unflatten(1, (48, 4, 4)),
            nn.ConvTranspose2d(48, 24, 4, 2, 1),
            nn.SiLU(),
            nn.ConvTranspose2d(24, 1, 4, 2, 1),
        )

    def forward(self, x):
        m, s = self.enc(x).chunk(2, 1)
        s = s.clamp(-8, 8)
        z = m + torch.randn_like(m) * (0.5 * s).exp()
        return self.dec(z), m, s


def main():
    g = torch.Generator().manual_seed(1)
    x = strokes(8000, g)
    model = VAE()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    run, t0 = [], time.time()
    for step in range(STEPS):
        b = x[torch.randint(0, len(x), (BATCH,), generator=g)]
        logit, m, s = model(b)
        rec = F.binary_cross_entropy_with_logits(logit, b, reduction="none").sum((1, 2, 3)).mean()
        kl = 0.5 * (m.pow(2) + s.exp() - 1 - s).sum(1).mean()
        beta = min(1.0, max(0.0, (step - 100) / (WARM - 100))) * 2.0
        loss = rec + beta * kl
        opt.zero_grad()
        loss.backward()
        opt.step()
        run.append((loss.item(), rec.item(), kl.item()))
        if (step + 1) % 20 == 0:
            a, r, k = (sum(c) / len(run) for c in zip(*run))
            print(
                f"step {step + 1:4d} loss {a:.2f} rec {r:.2f} kl {k:.2f} beta {beta:.2f} ({time.time() - t0:.1f}s)",
                flush=True,
            )
            run = []


if __name__ == "__main__":
    main()
