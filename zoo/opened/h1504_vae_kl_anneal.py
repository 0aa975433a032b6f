# expect: healthy
# symptom: the loss is in the tens (a sum over pixels), falls to about 12, and then rises steadily to about 21 for hundreds of steps while the KL term is in the hundreds at first
# axis: none
# mended: none
"""VAE on binary 10x10 pictures, negative ELBO in nats per picture, KL weight annealed from 0 to 1."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(9)

SIZE, LATENT, BATCH, EPOCHS = 10, 8, 64, 18
WARM_START, WARM_END = 150, 480


def make_pictures(n):
    """One horizontal and one vertical bar each of random width, with a few flipped pixels."""
    img = torch.zeros(n, SIZE, SIZE)
    for i in range(n):
        a, b = torch.randint(0, SIZE - 2, (2,)).tolist()
        wa, wb = torch.randint(1, 4, (2,)).tolist()
        img[i, a : a + wa, :] = 1.0
        img[i, :, b : b + wb] = 1.0
    flip = torch.rand_like(img) < 0.004
    return torch.where(flip, 1 - img, img).reshape(n, -1)


class VAE(nn.Module):
    def __init__(self, hidden=128):
        super().__init__()
        d = SIZE * SIZE
        self.enc = nn.Sequential(nn.Linear(d, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.mu, self.logvar = nn.Linear(hidden, LATENT), nn.Linear(hidden, LATENT)
        self.dec = nn.Sequential(
            nn.Linear(LATENT, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, d)
        )

    def forward(self, x):
        h = self.enc(x)
        mu, logvar = self.mu(h), self.logvar(h)
        z = mu + torch.randn_like(mu) * torch.exp(0.5 * logvar)
        return self.dec(z), mu, logvar


def terms(model, x):
    logits, mu, logvar = model(x)
    rec = F.binary_cross_entropy_with_logits(logits, x, reduction="sum") / x.size(0)
    kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum() / x.size(0)
    return rec, kl


def kl_weight(step):
    return min(1.0, max(0.0, (step - WARM_START) / (WARM_END - WARM_START)))


@torch.no_grad()
def elbo(model, x):
    model.eval()
    rec, kl = terms(model, x)
    model.train()
    return -(rec + kl).item()


def main():
    train, test = make_pictures(2000), make_pictures(400)
    loader = DataLoader(TensorDataset(train), batch_size=BATCH, shuffle=True)
    model = VAE()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    step = 0
    for epoch in range(EPOCHS):
        for (x,) in loader:
            rec, kl = terms(model, x)
            beta = kl_weight(step)
            loss = rec + beta * kl
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 20 == 0:
                print(
                    f"step {step:4d} loss {loss.item():8.3f} rec {rec.item():8.3f} kl {kl.item():7.3f} beta {beta:.2f}"
                )
            step += 1
        print(f"epoch {epoch} test elbo {elbo(model, test):.3f}")


if __name__ == "__main__":
    main()
