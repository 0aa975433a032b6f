# expect: healthy
# symptom: the total loss rises for a long stretch like a KL term that blows up; a deliberate beta warm-up
# axis: loss
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(51)

DIM, LATENT, STEPS, WARM = 48, 6, 480, 200
BETA_MAX = 1.0


def plant_sensors(n, seed):
    """48 sensors of a plant that are driven by four hidden operating variables."""
    g = torch.Generator().manual_seed(seed)
    mix = torch.Generator().manual_seed(77)
    a = torch.randn(4, 32, generator=mix)
    b = torch.randn(32, DIM, generator=mix) / 32**0.5
    z = torch.randn(n, 4, generator=g)
    clean = torch.tanh(0.7 * z @ a) @ b * 2.0
    return clean + 0.15 * torch.randn(n, DIM, generator=g)


class SensorVAE(nn.Module):
    def __init__(self, hidden=96):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(DIM, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.mu = nn.Linear(hidden, LATENT)
        self.logvar = nn.Linear(hidden, LATENT)
        self.dec = nn.Sequential(
            nn.Linear(LATENT, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, DIM)
        )

    def encode(self, x):
        h = self.enc(x)
        return self.mu(h), self.logvar(h).clamp(-8, 4)

    def forward(self, x):
        mu, logvar = self.encode(x)
        z = mu + torch.randn_like(mu) * torch.exp(0.5 * logvar)
        return self.dec(z), mu, logvar


def terms(x, out, mu, logvar):
    # Gaussian likelihood with a fixed noise level of 0.25, in nats per example
    recon = ((x - out) ** 2).sum(1).mean() / (2 * 0.25**2)
    kl = 0.5 * (mu**2 + logvar.exp() - 1 - logvar).sum(1).mean()
    return recon, kl


def main():
    data, held = plant_sensors(4000, 1), plant_sensors(1000, 2)
    model = SensorVAE()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(STEPS):
        x = data[torch.randint(0, len(data), (128,))]
        beta = BETA_MAX * min(1.0, max(0.0, (step - 180) / WARM))
        recon, kl = terms(x, *model(x))
        loss = recon + beta * kl
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 25 == 0:
            print(f"step {step} loss {loss.item():.3f} recon {recon.item():.3f} kl {kl.item():.3f} beta {beta:.2f}")
    model.eval()
    with torch.no_grad():
        recon, kl = terms(held, *model(held))
        mse = ((held - model.dec(model.encode(held)[0])) ** 2).mean() / held.var()
    print(f"final held-out recon {recon.item():.3f} kl {kl.item():.3f} unexplained variance {mse.item():.4f}")


if __name__ == "__main__":
    main()
