# expect: healthy
# symptom: signs that look turned and are right
# axis: none
# mended: none
import torch
import torch.nn as nn
from torch.distributions import Bernoulli

torch.manual_seed(8)
torch.set_num_threads(1)


def make_patterns(n):
    proto = (torch.rand(5, 40) < 0.4).float()
    which = torch.randint(0, 5, (n,))
    x = proto[which]
    flip = torch.rand_like(x) < 0.08
    return torch.where(flip, 1 - x, x)


class Encoder(nn.Module):
    def __init__(self, latent):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(40, 48), nn.Tanh(), nn.Linear(48, 2 * latent))

    def forward(self, x):
        mu, raw = self.net(x).chunk(2, dim=-1)
        return mu, nn.functional.softplus(raw) + 1e-4


class PatternVAE:
    def __init__(self, latent=4):
        self.encoder = Encoder(latent)
        self.decoder = nn.Sequential(nn.Linear(latent, 48), nn.Tanh(), nn.Linear(48, 40))
        self.critic = nn.Sequential(nn.Linear(latent, 16), nn.ReLU(), nn.Linear(16, 1))
        self.opt = torch.optim.Adam([*self.encoder.parameters(), *self.decoder.parameters()], lr=4e-3)
        self.critic_opt = torch.optim.Adam(self.critic.parameters(), lr=2e-3)

    def elbo(self, x):
        mu, var = self.encoder(x)
        z = mu + var.sqrt() * torch.randn_like(mu)
        loglik = Bernoulli(logits=self.decoder(z)).log_prob(x).sum(-1)
        kl = 0.5 * (mu**2 + var - 1 - var.log()).sum(-1)
        return (loglik - kl).mean(), kl.mean(), z

    def critic_step(self, z):
        bce = nn.functional.binary_cross_entropy_with_logits
        prior, code = self.critic(torch.randn_like(z)), self.critic(z.detach())
        loss = bce(prior, torch.ones_like(prior)) + bce(code, torch.zeros_like(code))
        self.critic_opt.zero_grad()
        loss.backward()
        self.critic_opt.step()

    def step(self, x):
        elbo, kl, z = self.elbo(x)
        self.critic_step(z)
        objective = elbo + 0.05 * self.critic(z).mean()
        self.opt.zero_grad()
        (-objective).backward()
        self.opt.step()
        return elbo.item(), kl.item()


data = make_patterns(800)
vae = PatternVAE()
for step in range(1, 241):
    elbo, kl = vae.step(data[torch.randint(0, 800, (64,))])
    if step % 60 == 0:
        print(f"step {step} elbo {elbo:.3f} kl {kl:.3f}")
