# expect: sick
# symptom: VAE loss settles early and looks fine, but every reconstruction is the same grey blur and samples do not depend on z; KL is about 0
# axis: loss
# cause: reconstruction is averaged over all pixels while the KL is summed over latents, so the KL is weighted hundreds of times too strongly and the posterior collapses
# says: posterior.{0,10}collaps|kl\W?.{0,80}(weight|dominat|outweigh|too (strong|large|high|big)|scale|sum|imbalance|over)|(recon\w*|bce|mse)[^.]{0,100}(mean|averag|too small|scale|per.pixel|reduction|weak|imbalance)|(beta|scale|reduction|weight)[^.]{0,60}(mismatch|inconsisten|imbalance|too (high|large))
# onset_step: 0
# fix: sum the reconstruction term over pixels (mean over the batch only), or scale the KL by 1/pixels
# mended: MENDED=1 sums the reconstruction over the pixels of an image
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)

SIZE, ZDIM = 24, 8


def draw_shapes(n, seed):
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[0:SIZE, 0:SIZE]
    imgs = np.zeros((n, 1, SIZE, SIZE), dtype=np.float32)
    for i in range(n):
        cx, cy = rng.uniform(6, SIZE - 6, size=2)
        r = rng.uniform(3, 6)
        kind = rng.integers(3)
        if kind == 0:
            m = (xx - cx) ** 2 + (yy - cy) ** 2 <= r * r
        elif kind == 1:
            m = (abs(xx - cx) <= r) & (abs(yy - cy) <= r)
        else:
            m = abs(xx - cx) + abs(yy - cy) <= r * 1.3
        imgs[i, 0] = m
    return torch.from_numpy(imgs)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, 16, 4, 2, 1),
            nn.SiLU(),
            nn.Conv2d(16, 32, 4, 2, 1),
            nn.SiLU(),
            nn.Flatten(),
            nn.Linear(32 * 6 * 6, 128),
            nn.SiLU(),
        )
        self.mu = nn.Linear(128, ZDIM)
        self.logvar = nn.Linear(128, ZDIM)

    def forward(self, x):
        h = self.net(x)
        return self.mu(h), self.logvar(h)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Sequential(nn.Linear(ZDIM, 128), nn.SiLU(), nn.Linear(128, 32 * 6 * 6), nn.SiLU())
        self.net = nn.Sequential(
            nn.ConvTranspose2d(32, 16, 4, 2, 1),
            nn.SiLU(),
            nn.ConvTranspose2d(16, 1, 4, 2, 1),
        )

    def forward(self, z):
        return self.net(self.fc(z).view(-1, 32, 6, 6))


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.dec = Encoder(), Decoder()

    def forward(self, x):
        mu, logvar = self.enc(x)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        return self.dec(z), mu, logvar


def elbo_terms(logits, x, mu, logvar):
    if MENDED:
        rec = F.binary_cross_entropy_with_logits(logits, x, reduction="none").flatten(1).sum(1).mean()
    else:
        rec = F.binary_cross_entropy_with_logits(logits, x)
    kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(1).mean()
    return rec, kl


@torch.no_grad()
def evaluate(model, x):
    mu, _ = model.enc(x)
    p = model.dec(mu).sigmoid()
    iou = ((p > 0.5) & (x > 0.5)).sum((1, 2, 3)) / ((p > 0.5) | (x > 0.5)).sum((1, 2, 3)).clamp(min=1)
    s = model.dec(torch.randn(64, ZDIM)).sigmoid()
    return iou.mean().item(), s.std(0).mean().item()


def main():
    torch.manual_seed(11)
    train, test = draw_shapes(6000, 0), draw_shapes(400, 1)
    model = VAE()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    B, step = 64, 0
    for epoch in range(8):
        perm = torch.randperm(len(train))
        for i in range(0, len(train) - B + 1, B):
            x = train[perm[i : i + B]]
            logits, mu, logvar = model(x)
            rec, kl = elbo_terms(logits, x, mu, logvar)
            loss = rec + kl
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 40 == 0:
                print(f"step {step:4d} loss {loss.item():.4f} rec {rec.item():.4f} kl {kl.item():.4f}")
            step += 1
        iou, spread = evaluate(model, test)
        print(f"epoch {epoch} test IoU {iou:.3f} sample spread {spread:.4f}")


if __name__ == "__main__":
    main()
