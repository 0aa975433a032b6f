# expect: sick
# symptom: the KL term falls to zero within a few dozen steps and reconstructions are all the mean image
# axis: loss
# cause: z is drawn with .sample(), which has no gradient, so the reconstruction never reaches the encoder; only the KL term trains it
# says: rsample|reparam|\.sample\(\)|no gradient.*(encoder|sampl)|(encoder|sampl).*(no gradient|not differentiable|detach|cut)|gradient.*(sampl|encoder)
# onset_step: 0
# fix: use rsample()
# mended: rsample
import os
import torch
from torch import nn
from torch.distributions import Normal, kl_divergence

torch.set_num_threads(1)
torch.manual_seed(25)
MENDED = os.environ.get("MENDED") == "1"


def patches(n, side=10):
    g = torch.linspace(-1, 1, side)
    theta, phase, freq = torch.rand(3, n, 1, 1)
    theta, phase, freq = theta * 3.14, phase * 3.14, 1.5 + 1.5 * freq
    wave = torch.sin(freq * (g[None, :, None] * theta.cos() + g[None, None, :] * theta.sin()) * 2 + phase)
    return (wave + 0.1 * torch.randn(n, side, side)).flatten(1)


class VAE(nn.Module):
    def __init__(self, n_in=100, hidden=96, latent=6):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(n_in, hidden), nn.ReLU(), nn.Linear(hidden, 2 * latent))
        self.dec = nn.Sequential(nn.Linear(latent, hidden), nn.ReLU(), nn.Linear(hidden, n_in))

    def posterior(self, x):
        mu, raw = self.enc(x).chunk(2, -1)
        return Normal(mu, nn.functional.softplus(raw) + 1e-3)

    def forward(self, x):
        q = self.posterior(x)
        z = q.rsample() if MENDED else q.sample()
        return self.dec(z), q


def elbo_terms(model, x, sigma=0.3):
    recon, q = model(x)
    nll = ((recon - x) ** 2).sum(-1).mean() / (2 * sigma**2)
    kl = kl_divergence(q, Normal(0.0, 1.0)).sum(-1).mean()
    return nll, kl


train, held = patches(4000), patches(500)
model = VAE()
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
for step in range(1, 301):
    x = train[torch.randint(0, len(train), (64,))]
    nll, kl = elbo_terms(model, x)
    loss = nll + kl
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 0:
        with torch.no_grad():
            n2, k2 = elbo_terms(model, held)
        print(
            f"step {step} loss {loss.item():.1f} nll {nll.item():.1f} kl {kl.item():.2f} held-out {(n2 + k2).item():.1f}"
        )
