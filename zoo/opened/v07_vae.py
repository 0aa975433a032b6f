# expect: sick
# symptom: the quantity that is to get better gets worse
# axis: loss
# cause: a term of the loss has the wrong sign
# says: (wrong|flipped|missing|opposite).{0,20}(sign|minus|negat)|(sign|minus).{0,60}|(maximi|minimi)[sz].{0,60}
# onset_step: 0
# fix: turn the sign of the term
# mended: the same with the fix
import os

import torch
from torch import nn
from torch.utils.data import DataLoader

MENDED = os.environ.get("MENDED") == "1"


def draw_bars(n, side=8):
    """Noisy images with one horizontal and one vertical bar."""
    img = torch.zeros(n, side, side)
    rows, cols = torch.randint(0, side, (2, n))
    img[torch.arange(n), rows] = 1.0
    img[torch.arange(n), :, cols] = 1.0
    flip = torch.rand_like(img) < 0.02
    return torch.where(flip, 1 - img, img).flatten(1)


class VAE(nn.Module):
    def __init__(self, n_in=64, n_latent=6):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(n_in, 64), nn.ReLU())
        self.mu = nn.Linear(64, n_latent)
        self.logvar = nn.Linear(64, n_latent)
        self.dec = nn.Sequential(nn.Linear(n_latent, 64), nn.ReLU(), nn.Linear(64, n_in))
        self.n_latent = n_latent

    def encode(self, x):
        h = self.enc(x)
        return self.mu(h), self.logvar(h).clamp(-6, 6)

    def forward(self, x):
        mu, logvar = self.encode(x)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        return self.dec(z), mu, logvar


def loss_function(logits, x, mu, logvar):
    bce = nn.functional.binary_cross_entropy_with_logits(logits, x, reduction="sum") / len(x)
    kld = 0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(1).mean()
    if MENDED:
        kld = -kld
    return bce + 0.5 * kld, bce, kld


def main():
    torch.manual_seed(7)
    torch.set_num_threads(1)
    data = draw_bars(1024)
    loader = DataLoader(data, batch_size=64, shuffle=True)
    model = VAE()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(1, 13):
        sums = torch.zeros(3)
        for x in loader:
            logits, mu, logvar = model(x)
            loss, bce, kld = loss_function(logits, x, mu, logvar)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            sums += torch.tensor([loss.item(), bce.item(), kld.item()])
        if epoch % 3 == 0:
            loss, bce, kld = (sums / len(loader)).tolist()
            print(f"epoch {epoch} loss {loss:.2f} bce {bce:.2f} kld {kld:.2f}")

    with torch.no_grad():
        mu, _ = model.encode(data)
        sample = model.dec(torch.randn(256, model.n_latent)).sigmoid()
        nearest = torch.cdist(sample, data).min(1).values.mean()
    print(f"latent mean square {mu.pow(2).mean():.3f}  sample-to-data distance {nearest:.3f}")


main()
