# expect: healthy
# symptom: the total loss falls to 15 and then climbs to 27 as beta rises (resembles a slow divergence)
# axis: loss
import math

import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(14)

LENGTH, LATENT = 48, 6


def heartbeat_like(n, seed):
    """Periodic pulses with varying rate, phase, height and baseline; unit scale."""
    g = torch.Generator().manual_seed(seed)
    u = torch.rand(n, 4, generator=g)
    t = torch.arange(LENGTH) / LENGTH
    phase = (1.5 + 1.5 * u[:, :1]) * t + u[:, 1:2]
    pulse = torch.exp(8.0 * (torch.cos(2 * math.pi * phase) - 1))
    x = (0.8 + 1.2 * u[:, 2:3]) * pulse + 0.6 * (u[:, 3:] - 0.5)
    return x + 0.1 * torch.randn(n, LENGTH, generator=g)


class SensorVAE(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(LENGTH, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.to_stats = nn.Linear(width, 2 * LATENT)
        self.dec = nn.Sequential(
            nn.Linear(LATENT, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, LENGTH)
        )

    def forward(self, x):
        mu, logvar = self.to_stats(self.enc(x)).chunk(2, dim=1)
        logvar = logvar.clamp(-8, 4)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        return self.dec(z), mu, logvar


def terms(model, x, noise_var=0.05):
    recon, mu, logvar = model(x)
    rec = 0.5 * ((recon - x) ** 2).sum(1).mean() / noise_var
    kl = 0.5 * (mu**2 + logvar.exp() - 1 - logvar).sum(1).mean()
    return rec, kl


def beta_at(step, hold=150, ramp=60):
    return 0.002 + 0.998 * min(1.0, max(0.0, (step - hold) / ramp))


def main():
    train, val = heartbeat_like(4000, 0), heartbeat_like(800, 1)
    base = 0.5 * ((val - train.mean(0)) ** 2).sum(1).mean().item() / 0.05
    print(f"reconstruction term of the mean signal {base:.2f}")
    model = SensorVAE()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    g = torch.Generator().manual_seed(2)
    for step in range(420):
        x = train[torch.randint(0, len(train), (128,), generator=g)]
        rec, kl = terms(model, x)
        beta = beta_at(step)
        loss = rec + beta * kl
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0:
            print(f"step {step:4d} loss {loss.item():.3f} rec {rec.item():.3f} kl {kl.item():.3f} beta {beta:.2f}")
        if step % 105 == 104:
            with torch.no_grad():
                r, k = terms(model, val)
            print(f"  val rec {r.item():.3f} kl {k.item():.3f} elbo {-(r + k).item():.3f}")
    print(f"final loss {loss.item():.3f} val_rec {r.item():.3f} val_kl {k.item():.3f} (mean signal {base:.2f})")


if __name__ == "__main__":
    main()
