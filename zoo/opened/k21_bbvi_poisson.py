# expect: healthy
# symptom: .sample() where others use rsample
# axis: none
# mended: none
import torch
from torch import nn
from torch.distributions import Normal, Poisson

torch.set_num_threads(1)
torch.manual_seed(48)
DRAWS, STEPS = 32, 350


class CountModel:
    """Poisson regression with a normal prior; the likelihood is a black box to the guide."""

    def __init__(self, n=300, d=5):
        self.w = 0.5 * torch.randn(d)
        self.x = torch.randn(n, d)
        self.y = Poisson((self.x @ self.w + 0.5).exp()).sample()

    @torch.no_grad()
    def log_joint(self, z):
        w, b = z[:, :-1], z[:, -1:]
        rate = (w @ self.x.T + b).clamp(max=6).exp()
        return Poisson(rate).log_prob(self.y).sum(-1) + Normal(0.0, 1.0).log_prob(z).sum(-1)


class Guide(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.loc = nn.Parameter(torch.zeros(d))
        self.log_scale = nn.Parameter(torch.full((d,), -1.0))

    def forward(self):
        return Normal(self.loc, self.log_scale.exp())


model = CountModel()
guide = Guide(6)
opt = torch.optim.Adam(guide.parameters(), lr=2e-2)
trace = []
for step in range(STEPS):
    q = guide()
    z = q.sample((DRAWS,))
    log_q = q.log_prob(z).sum(-1)
    elbo = model.log_joint(z) - log_q.detach()
    # score-function gradient, leave-one-out baseline
    baseline = (elbo.sum() - elbo) / (DRAWS - 1)
    loss = -(log_q * (elbo - baseline) / elbo.std().clamp(min=1.0)).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    trace.append(elbo.mean().item())
    if (step + 1) % 50 == 0:
        err = (guide.loc[:-1] - model.w).abs().mean().item()
        print(
            f"step {step + 1} elbo {sum(trace[-50:]) / 50:.1f} scale {guide.log_scale.exp().mean().item():.3f} mean error {err:.3f}"
        )
