# expect: healthy
# symptom: the loss is in the hundreds and, after a first fall, rises for a while as the KL weight is raised from 0 to 4
# axis: none
# mended: none
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(10)

SIZE, LATENT, BATCH, STEPS = 20, 8, 48, 700
BETA_START, BETA_END, BETA_MAX = 120, 450, 4.0


def squares(n, seed):
    """A dSprites-like set: one bar with position, size and brightness as the factors."""
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[:SIZE, :SIZE].astype(np.float32)
    img = np.empty((n, 1, SIZE, SIZE), np.float32)
    for i in range(n):
        cx, cy = rng.uniform(5, SIZE - 5, 2)
        a, b = rng.uniform(2, 5), rng.uniform(2, 5)
        inside = 1 / (1 + np.exp(3 * (np.maximum(abs(xx - cx) - a, abs(yy - cy) - b))))
        img[i, 0] = inside * rng.uniform(0.5, 1.0)
    return torch.from_numpy(img)


class ConvVAE(nn.Module):
    def __init__(self, w=16):
        super().__init__()
        self.enc = nn.Sequential(
            nn.Conv2d(1, w, 4, 2, 1),
            nn.ReLU(),
            nn.Conv2d(w, 2 * w, 4, 2, 1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(2 * w * 25, 96),
            nn.ReLU(),
            nn.Linear(96, 2 * LATENT),
        )
        self.dec = nn.Sequential(
            nn.Linear(LATENT, 96),
            nn.ReLU(),
            nn.Linear(96, 2 * w * 25),
            nn.ReLU(),
            nn.Unflatten(1, (2 * w, 5, 5)),
            nn.ConvTranspose2d(2 * w, w, 4, 2, 1),
            nn.ReLU(),
            nn.ConvTranspose2d(w, 1, 4, 2, 1),
        )

    def forward(self, x):
        mu, logvar = self.enc(x).chunk(2, dim=1)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        return self.dec(z), mu, logvar


def beta_at(step):
    return BETA_MAX * min(1.0, max(0.0, (step - BETA_START) / (BETA_END - BETA_START)))


def main():
    train, valid = squares(3000, 1), squares(256, 2)
    model = ConvVAE()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    t0 = time.time()
    for step in range(STEPS):
        x = train[torch.randint(0, len(train), (BATCH,))]
        logits, mu, logvar = model(x)
        recon = F.binary_cross_entropy_with_logits(logits, x, reduction="sum") / BATCH
        kl = -0.5 * (1 + logvar - mu**2 - logvar.exp()).sum(1).mean()
        beta = beta_at(step)
        loss = recon + beta * kl
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 25 == 0:
            print(
                f"step {step:4d} loss {loss.item():.2f} recon {recon.item():.2f} kl {kl.item():.2f} "
                f"beta {beta:.2f} ({time.time() - t0:.1f}s)"
            )
    model.eval()
    with torch.no_grad():
        logits, mu, logvar = model(valid)
        mse = F.mse_loss(logits.sigmoid(), valid).item()
        base = valid.var(0).mean().item()
        active = int((mu.var(0) > 0.05).sum())
    print(f"valid mse {mse:.4f} (mean picture {base:.4f}) active latent dimensions {active} of {LATENT}")


if __name__ == "__main__":
    main()
