# expect: sick
# symptom: loss falls fast and then stays level; the KL is almost zero and every reconstruction looks like the same grey average picture
# axis: loss
# cause: the reconstruction term is averaged over all pixels while the KL is summed over the latent dimensions, so the KL weighs hundreds of times too much and the posterior collapses to the prior
# says: (\bkl\b|kullback|posterior|latent|reconstruction|\brec(on)?\b|\bbeta\b).{0,160}(weight|scale|collaps|\bsum|mean|averag|reduc|dominat|balanc|too (large|strong|much|heavy)|ratio)
# onset_step: 0
# fix: sum the reconstruction over pixels as well (then mean over the batch), or scale the KL by 1/pixels
# mended: reconstruction summed over pixels per picture
"""Convolutional VAE on small pictures of bars and blobs."""

import os
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(41)

SIZE, LATENT, STEPS, BATCH = 20, 8, 600, 64


def pictures(n, gen):
    yy, xx = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
    c = torch.rand(n, 2, generator=gen) * 12 + 4
    s = torch.rand(n, generator=gen) * 2 + 1.5
    blob = torch.exp(-((yy - c[:, 0, None, None]) ** 2 + (xx - c[:, 1, None, None]) ** 2) / (2 * s[:, None, None] ** 2))
    row = torch.randint(2, SIZE - 2, (n,), generator=gen)
    vert = torch.rand(n, generator=gen) < 0.5
    grid = torch.where(vert[:, None, None], xx[None].expand(n, -1, -1), yy[None].expand(n, -1, -1))
    bar = ((grid - row[:, None, None]).abs() <= 1).float() * 0.8
    return torch.maximum(blob, bar)[:, None]


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(
            nn.Conv2d(1, 16, 4, 2, 1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 4, 2, 1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * 25, 128),
            nn.ReLU(),
        )
        self.mu, self.logvar = nn.Linear(128, LATENT), nn.Linear(128, LATENT)
        self.dec_in = nn.Sequential(nn.Linear(LATENT, 128), nn.ReLU(), nn.Linear(128, 32 * 25), nn.ReLU())
        self.dec = nn.Sequential(nn.ConvTranspose2d(32, 16, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(16, 1, 4, 2, 1))

    def forward(self, x):
        h = self.enc(x)
        mu, logvar = self.mu(h), self.logvar(h)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp() if self.training else mu
        return self.dec(self.dec_in(z).view(-1, 32, 5, 5)), mu, logvar


def objective(logits, x, mu, logvar):
    if MENDED:
        rec = F.binary_cross_entropy_with_logits(logits, x, reduction="none").flatten(1).sum(1).mean()
    else:
        rec = F.binary_cross_entropy_with_logits(logits, x)
    kl = -0.5 * (1 + logvar - mu**2 - logvar.exp()).sum(1).mean()
    return rec + kl, rec, kl


def main():
    gen = torch.Generator().manual_seed(9)
    train, test = pictures(4000, gen), pictures(500, gen)
    model = VAE()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    t0 = time.time()
    model.train()
    for step in range(STEPS):
        x = train[torch.randint(0, len(train), (BATCH,), generator=gen)]
        logits, mu, logvar = model(x)
        loss, rec, kl = objective(logits, x, mu, logvar)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 25 == 0 or step == STEPS - 1:
            print(f"step {step:4d} loss {loss.item():.4f} rec {rec.item():.4f} kl {kl.item():.4f}", flush=True)
    model.eval()
    with torch.no_grad():
        logits, mu, _ = model(test)
        err = F.mse_loss(logits.sigmoid(), test).item()
        base = F.mse_loss(train.mean(0, keepdim=True).expand_as(test), test).item()
    print(
        f"test pixel mse {err:.4f} (mean picture {base:.4f})  spread of mu {mu.std(0).mean():.3f}  {time.time() - t0:.1f}s"
    )


if __name__ == "__main__":
    main()
