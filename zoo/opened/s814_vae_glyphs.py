# expect: sick
# symptom: the KL goes to zero, every reconstruction is the same grey mean image, samples show nothing
# axis: loss
# cause: the reconstruction error is averaged over all pixels while the KL is summed over latent dimensions, so the KL outweighs it by hundreds and the posterior collapses
# says: posterior.?collapse|KL[\s\S]{0,60}(dominat|outweigh|overwhelm|too (strong|large|high|heavy)|over-?weight|weight|swamp|balance)|(recon\w*|mse|bce)[\s\S]{0,60}(mean|averag)\w*[\s\S]{0,60}(KL|sum)|(reduction|scale)[\s\S]{0,40}(mismatch|differ|inconsisten)|latent\w*[\s\S]{0,40}(ignored|unused|collapse|inactive)
# onset_step: 1
# fix: sum the reconstruction error over pixels (mean over the batch only), or scale the KL by the number of pixels
# mended: with MENDED=1 the reconstruction error is summed over pixels and averaged over the batch
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
SIZE, LATENT = 20, 8
BATCH, STEPS = 128, 600


def make_glyphs(n, rng):
    imgs = np.zeros((n, SIZE, SIZE), np.float32)
    yy, xx = np.mgrid[0:SIZE, 0:SIZE]
    for i in range(n):
        cy, cx = rng.uniform(6, 14, 2)
        r = rng.uniform(3, 6)
        d = np.sqrt((yy - cy) ** 2 + (xx - cx) ** 2)
        kind = rng.integers(3)
        if kind == 0:
            m = np.clip(1.5 - np.abs(d - r), 0, 1)
        elif kind == 1:
            m = np.clip(r - np.maximum(np.abs(yy - cy), np.abs(xx - cx)), 0, 1)
        else:
            m = np.clip(1.5 - np.minimum(np.abs(yy - cy), np.abs(xx - cx)), 0, 1) * (d < r + 2)
        imgs[i] = m
    return torch.from_numpy(imgs)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(1, 16, 4, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 4, 2, 1), nn.ReLU())
        self.fc = nn.Linear(32 * 25, 2 * LATENT)

    def forward(self, x):
        mu, logvar = self.fc(self.conv(x).flatten(1)).chunk(2, 1)
        return mu, logvar


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(LATENT, 32 * 25)
        self.conv = nn.Sequential(nn.ConvTranspose2d(32, 16, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(16, 1, 4, 2, 1))

    def forward(self, z):
        return torch.sigmoid(self.conv(F.relu(self.fc(z)).view(-1, 32, 5, 5)))


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.dec = Encoder(), Decoder()

    def forward(self, x):
        mu, logvar = self.enc(x)
        z = mu + torch.randn_like(mu) * torch.exp(0.5 * logvar)
        return self.dec(z), mu, logvar


def loss_function(recon, x, mu, logvar):
    rec = F.mse_loss(recon, x)
    if os.environ.get("MENDED") == "1":
        rec = F.mse_loss(recon, x, reduction="sum") / x.size(0)
    kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp(), dim=1).mean()
    return rec + kld, rec, kld


@torch.no_grad()
def pixel_mse(model, x):
    mu, _ = model.enc(x)
    return F.mse_loss(model.dec(mu), x).item(), mu.std(0).mean().item()


def main():
    torch.manual_seed(3)
    rng = np.random.default_rng(3)
    train = make_glyphs(4000, rng).unsqueeze(1)
    test = make_glyphs(400, rng).unsqueeze(1)
    print(f"pixel variance of the data {test.sub(train.mean(0)).pow(2).mean().item():.4f}")

    model = VAE()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step in range(1, STEPS + 1):
        x = train[torch.randint(0, len(train), (BATCH,))]
        recon, mu, logvar = model(x)
        loss, rec, kld = loss_function(recon, x, mu, logvar)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 50 == 0 or step == 1:
            mse, spread = pixel_mse(model, test)
            print(
                f"step {step:4d} loss {loss.item():9.4f} rec {rec.item():9.4f} kl {kld.item():8.4f} "
                f"test pixel mse {mse:.4f} spread of mu {spread:.3f}"
            )


if __name__ == "__main__":
    main()
