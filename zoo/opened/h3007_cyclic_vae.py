# expect: healthy
# symptom: the total loss jumps up several times when the KL weight is raised, resembling divergence or a collapse
# axis: schedule
"""VAE on small bar images with a cyclic KL weight."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
STEPS, CYCLE, BATCH, LATENT = 480, 120, 64, 8


def bars(n, gen):
    """12x12 images: one horizontal and one vertical bar of varying width on a dark ground."""
    img = torch.full((n, 12, 12), 0.05)
    r = torch.randint(0, 10, (n,), generator=gen)
    c = torch.randint(0, 10, (n,), generator=gen)
    g = torch.arange(12)
    rows = (g[None] >= r[:, None]) & (g[None] < r[:, None] + 3)
    cols = (g[None] >= c[:, None]) & (g[None] < c[:, None] + 2)
    img = torch.where(rows[:, :, None] | cols[:, None, :], torch.tensor(0.95), img)
    return torch.bernoulli(img, generator=gen)


class BarVAE(nn.Module):
    def __init__(self, width=192):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(144, width), nn.ELU(), nn.Linear(width, width), nn.ELU())
        self.mu = nn.Linear(width, LATENT)
        self.logvar = nn.Linear(width, LATENT)
        self.dec = nn.Sequential(
            nn.Linear(LATENT, width), nn.ELU(), nn.Linear(width, width), nn.ELU(), nn.Linear(width, 144)
        )

    def forward(self, x):
        h = self.enc(x.flatten(1))
        mu, logvar = self.mu(h), self.logvar(h).clamp(-8, 8)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        return self.dec(z), mu, logvar


def kl_weight(step):
    """Ramps from 0 to 1 in the first half of each cycle, then stays at 1."""
    return min(1.0, (step % CYCLE) / (CYCLE / 2))


def terms(model, x):
    logits, mu, logvar = model(x)
    rec = F.binary_cross_entropy_with_logits(logits, x.flatten(1), reduction="none").sum(1).mean()
    kl = 0.5 * (mu.pow(2) + logvar.exp() - 1 - logvar).sum(1).mean()
    return rec, kl


@torch.no_grad()
def elbo(model, x):
    model.eval()
    rec, kl = terms(model, x)
    model.train()
    return -(rec + kl).item(), rec.item(), kl.item()


def main():
    torch.manual_seed(17)
    gen = torch.Generator().manual_seed(17)
    train, test = bars(8000, gen), bars(500, gen)
    model = BarVAE()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    print("untrained ELBO %.2f (rec %.2f kl %.2f)" % elbo(model, test))
    order, at = torch.randperm(len(train), generator=gen), 0
    for step in range(STEPS):
        if at + BATCH > len(order):
            order, at = torch.randperm(len(train), generator=gen), 0
        x = train[order[at : at + BATCH]]
        at += BATCH
        beta = kl_weight(step)
        rec, kl = terms(model, x)
        loss = rec + beta * kl
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 50.0)
        opt.step()
        if step % 20 == 0 or step == STEPS - 1:
            print(f"step {step:4d} beta {beta:.2f} loss {loss.item():.2f} rec {rec.item():.2f} kl {kl.item():.2f}")
        if (step + 1) % CYCLE == 0:
            print("cycle end: test ELBO %.2f (rec %.2f kl %.2f)" % elbo(model, test))


if __name__ == "__main__":
    main()
