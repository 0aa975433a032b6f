# expect: healthy
# symptom: the total loss climbs several times during the run, as if it diverged or the latent space collapsed
# axis: schedule
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
STEPS, BATCH, LATENT, SIZE = 400, 64, 6, 14
CYCLE, BETA_MAX = 100, 0.6


class Shapes:
    """Binary pictures: one filled rectangle or ellipse at a random place."""

    def __init__(self, count, seed):
        g = torch.Generator().manual_seed(seed)
        y, x = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
        c = torch.rand(count, 2, generator=g) * 7 + 3.5
        r = torch.rand(count, 2, generator=g) * 2.5 + 1.5
        dy = (y[None] - c[:, 0, None, None]) / r[:, 0, None, None]
        dx = (x[None] - c[:, 1, None, None]) / r[:, 1, None, None]
        rect = (dy.abs() <= 1) & (dx.abs() <= 1)
        oval = dy**2 + dx**2 <= 1
        pick = torch.rand(count, generator=g) < 0.5
        self.images = torch.where(pick[:, None, None], rect, oval).float()[:, None]

    def batch(self, gen):
        return self.images[torch.randint(0, len(self.images), (BATCH,), generator=gen)]


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(
            nn.Conv2d(1, 16, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * 4 * 4, 2 * LATENT),
        )
        self.dec = nn.Sequential(
            nn.Linear(LATENT, 128), nn.ReLU(), nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, SIZE * SIZE)
        )

    def forward(self, x, gen):
        mu, logvar = self.enc(x).chunk(2, dim=1)
        logvar = logvar.clamp(-8, 8)
        z = mu + torch.exp(0.5 * logvar) * torch.randn(mu.shape, generator=gen)
        return self.dec(z).view_as(x), mu, logvar


def elbo_parts(logits, x, mu, logvar):
    rec = F.binary_cross_entropy_with_logits(logits, x, reduction="none").sum((1, 2, 3)).mean()
    kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(1).mean()
    return rec, kl


def beta_at(step):
    """Zero in the first quarter of each cycle, then a ramp, then flat until the cycle ends."""
    return BETA_MAX * min(1.0, max(0.0, 2.0 * (step % CYCLE) / CYCLE - 0.5))


def main():
    torch.manual_seed(2)
    gen = torch.Generator().manual_seed(7)
    train, test = Shapes(4000, 1), Shapes(500, 2)
    model = VAE()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(STEPS):
        x = train.batch(gen)
        rec, kl = elbo_parts(*(lambda o: (o[0], x, o[1], o[2]))(model(x, gen)))
        beta = beta_at(step)
        loss = rec + beta * kl
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0:
            print(f"step {step:4d} loss {loss.item():8.3f} rec {rec.item():8.3f} kl {kl.item():7.3f} beta {beta:.2f}")
    with torch.no_grad():
        logits, mu, logvar = model(test.images, gen)
        rec, kl = elbo_parts(logits, test.images, mu, logvar)
        pixels = ((logits > 0).float() == test.images).float().mean().item()
        active = (mu.var(0) > 0.02).sum().item()
    print(f"test rec {rec.item():.3f} kl {kl.item():.3f} pixel accuracy {pixels:.4f} active units {active}/{LATENT}")


if __name__ == "__main__":
    main()
