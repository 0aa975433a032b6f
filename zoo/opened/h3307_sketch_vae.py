# expect: healthy
# symptom: the total loss jumps upward several times while KL weight is cycled; resembles a divergence
# axis: none
"""VAE on small stroke images with a cyclical KL weight; reconstruction is what is judged."""

import math

import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(31)

SIDE, LATENT, STEPS, BATCH, CYCLE = 14, 6, 420, 64, 105


def draw(n, seed):
    """Soft-edged bars and rings with random place, size and slant."""
    g = torch.Generator().manual_seed(seed)
    axis = torch.linspace(-1, 1, SIDE)
    yy, xx = torch.meshgrid(axis, axis, indexing="ij")
    cx, cy = torch.rand(2, n, 1, 1, generator=g) - 0.5
    ang = math.pi * torch.rand(n, 1, 1, generator=g)
    size = 0.25 + 0.3 * torch.rand(n, 1, 1, generator=g)
    ring = (torch.rand(n, 1, 1, generator=g) < 0.5).float()
    dx, dy = xx - cx, yy - cy
    along = dx * ang.cos() + dy * ang.sin()
    across = -dx * ang.sin() + dy * ang.cos()
    bar = torch.sigmoid(12 * (0.15 - across.abs())) * torch.sigmoid(12 * (size + 0.2 - along.abs()))
    rad = torch.sqrt(dx**2 + dy**2 + 1e-6)
    circle = torch.sigmoid(12 * (0.15 - (rad - size).abs()))
    return (ring * circle + (1 - ring) * bar)[:, None]


class SketchVAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(
            nn.Conv2d(1, 16, 3, 2, 1),
            nn.SiLU(),
            nn.Conv2d(16, 32, 3, 2, 1),
            nn.SiLU(),
            nn.Flatten(),
            nn.Linear(32 * 16, 96),
            nn.SiLU(),
        )
        self.mu, self.logvar = nn.Linear(96, LATENT), nn.Linear(96, LATENT)
        self.dec = nn.Sequential(
            nn.Linear(LATENT, 128), nn.SiLU(), nn.Linear(128, 256), nn.SiLU(), nn.Linear(256, SIDE * SIDE)
        )

    def forward(self, x):
        h = self.enc(x)
        mu, logvar = self.mu(h), self.logvar(h).clamp(-8, 4)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        return self.dec(z).view_as(x), mu, logvar


def terms(model, x):
    logits, mu, logvar = model(x)
    rec = F.binary_cross_entropy_with_logits(logits, x, reduction="none").sum((1, 2, 3)).mean()
    kl = 0.5 * (mu**2 + logvar.exp() - 1 - logvar).sum(1).mean()
    return rec, kl


def kl_weight(step):
    """Ramp over the first half of every cycle, then hold at one."""
    return min(1.0, (step % CYCLE) / (0.5 * CYCLE))


def main():
    train, valid = draw(3000, 1), draw(500, 2)
    model = SketchVAE()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    order = torch.Generator().manual_seed(6)
    perm = torch.randperm(len(train), generator=order)
    cursor = 0
    for step in range(STEPS):
        if cursor + BATCH > len(perm):
            perm, cursor = torch.randperm(len(train), generator=order), 0
        x = train[perm[cursor : cursor + BATCH]]
        cursor += BATCH
        rec, kl = terms(model, x)
        beta = kl_weight(step)
        loss = rec + beta * kl
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 15 == 0:
            print(
                f"step {step:4d} beta {beta:.2f} loss {loss.item():7.3f} rec {rec.item():7.3f} kl {kl.item():6.3f}",
                flush=True,
            )
    model.eval()
    with torch.no_grad():
        rec, kl = terms(model, valid)
        mean = train.mean(0, keepdim=True).expand_as(valid)
        base = F.binary_cross_entropy(mean, valid, reduction="none").sum((1, 2, 3)).mean()
        floor = F.binary_cross_entropy(valid, valid, reduction="none").sum((1, 2, 3)).mean()
    print(f"final valid rec {rec.item():.3f} kl {kl.item():.3f} (mean image {base:.3f}, floor {floor:.3f})")


if __name__ == "__main__":
    main()
