# expect: healthy
# symptom: the loss jumps up several times (KL weight goes back to zero and rises again); resembles a spike
# axis: schedule
"""VAE on bar patterns with a cyclical weight of the KL term."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)

SIDE, LATENT, STEPS, CYCLES, BATCH = 12, 8, 480, 4, 64


def bars(n, gen):
    """Images with a few horizontal and vertical bars."""
    rows = (torch.rand(n, SIDE // 2, generator=gen) < 0.2).float().repeat_interleave(2, dim=1)
    cols = (torch.rand(n, SIDE // 2, generator=gen) < 0.2).float().repeat_interleave(2, dim=1)
    clean = torch.maximum(rows[:, :, None].expand(n, SIDE, SIDE), cols[:, None, :].expand(n, SIDE, SIDE))
    flip = (torch.rand(n, SIDE, SIDE, generator=gen) < 0.01).float()
    return (clean - flip).abs().unsqueeze(1)


class BarsVAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(
            nn.Conv2d(1, 16, 4, 2, 1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, 1, 1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * 36, 128),
            nn.ReLU(),
        )
        self.stats = nn.Linear(128, 2 * LATENT)
        self.dec = nn.Sequential(
            nn.Linear(LATENT, 128),
            nn.ReLU(),
            nn.Linear(128, 32 * 36),
            nn.ReLU(),
            nn.Unflatten(1, (32, 6, 6)),
            nn.ConvTranspose2d(32, 16, 4, 2, 1),
            nn.ReLU(),
            nn.Conv2d(16, 1, 3, 1, 1),
        )

    def forward(self, x):
        mean, logvar = self.stats(self.enc(x)).chunk(2, dim=1)
        logvar = logvar.clamp(-8, 4)
        z = mean + torch.randn_like(mean) * (0.5 * logvar).exp()
        return self.dec(z), mean, logvar


def kl_weight(step):
    period = STEPS // CYCLES
    return min(1.0, 2.0 * (step % period) / period)


def elbo_terms(model, x):
    logits, mean, logvar = model(x)
    rec = F.binary_cross_entropy_with_logits(logits, x, reduction="none").sum(dim=(1, 2, 3)).mean()
    kl = -0.5 * (1 + logvar - mean.pow(2) - logvar.exp()).sum(dim=1).mean()
    return rec, kl


def main():
    torch.manual_seed(14)
    gen = torch.Generator().manual_seed(1)
    train, valid = bars(6000, gen), bars(1000, gen)
    model = BarsVAE()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step in range(STEPS):
        x = train[torch.randint(0, len(train), (BATCH,))]
        rec, kl = elbo_terms(model, x)
        beta = kl_weight(step)
        loss = rec + beta * kl
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0 or step == STEPS - 1:
            print(f"step {step:4d} beta {beta:.2f} loss {loss.item():8.3f} rec {rec.item():8.3f} kl {kl.item():7.3f}")
    model.eval()
    with torch.no_grad():
        rec, kl = elbo_terms(model, valid)
        logits, _, _ = model(valid)
        pixel = ((logits > 0).float() == valid).float().mean()
    print(
        f"final valid -ELBO {(rec + kl).item():.3f} (rec {rec.item():.3f} kl {kl.item():.3f}) "
        f"pixel accuracy {pixel.item():.4f}"
    )


if __name__ == "__main__":
    main()
