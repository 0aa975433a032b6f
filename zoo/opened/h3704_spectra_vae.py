# expect: healthy
# symptom: resembles a diverging loss: the total rises for 150 steps while the KL weight is annealed up
# axis: loss
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(23)
BINS, LATENT = 64, 6


def make_spectra(n, seed):
    """Two peaks of varying place and width on a sloping baseline."""
    g = torch.Generator().manual_seed(seed)
    u = torch.rand(n, 5, generator=g)
    axis = torch.linspace(0, 1, BINS)[None]
    p1 = torch.exp(-(((axis - 0.15 - 0.25 * u[:, :1]) / (0.04 + 0.04 * u[:, 1:2])) ** 2))
    p2 = torch.exp(-(((axis - 0.6 - 0.25 * u[:, 2:3]) / 0.06) ** 2)) * (0.4 + u[:, 3:4])
    base = 0.5 * (u[:, 4:] - 0.5) * axis
    return p1 + p2 + base + 0.1 * torch.randn(n, BINS, generator=g)


class SpectraVAE(nn.Module):
    def __init__(self, hidden=96):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(BINS, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU())
        self.to_mu = nn.Linear(hidden, LATENT)
        self.to_logvar = nn.Linear(hidden, LATENT)
        self.dec = nn.Sequential(
            nn.Linear(LATENT, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU(), nn.Linear(hidden, BINS)
        )
        nn.init.zeros_(self.to_logvar.weight)
        nn.init.constant_(self.to_logvar.bias, -2.0)

    def forward(self, x):
        h = self.enc(x)
        mu, logvar = self.to_mu(h), self.to_logvar(h).clamp(-8, 4)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        return self.dec(z), mu, logvar


def elbo_terms(recon, x, mu, logvar, noise_var=0.05):
    rec = ((recon - x) ** 2).sum(1).mean() / (2 * noise_var)
    kl = 0.5 * (mu**2 + logvar.exp() - 1 - logvar).sum(1).mean()
    return rec, kl


def beta_at(step, start=120, ramp=160):
    return min(1.0, max(0.0, (step - start) / ramp))


def main():
    train, test = make_spectra(6000, 0), make_spectra(1000, 1)
    model = SpectraVAE()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    step = 0
    while step < 420:
        for idx in torch.randperm(len(train)).split(100):
            x = train[idx]
            recon, mu, logvar = model(x)
            rec, kl = elbo_terms(recon, x, mu, logvar)
            loss = rec + beta_at(step) * kl
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 10.0)
            opt.step()
            if step % 20 == 0:
                print(
                    f"step {step:3d} total {loss.item():.3f} rec {rec.item():.3f} kl {kl.item():.3f} "
                    f"beta {beta_at(step):.2f}"
                )
            step += 1
            if step == 420:
                break
    with torch.no_grad():
        recon, mu, logvar = model(test)
        rec, kl = elbo_terms(recon, test, mu, logvar)
        plain = ((test - train.mean(0)) ** 2).mean().item()
        mse = ((recon - test) ** 2).mean().item()
    print(f"test negative elbo {(rec + kl).item():.3f} mse {mse:.4f} (mean spectrum {plain:.4f}) kl {kl.item():.2f}")


if __name__ == "__main__":
    main()
