# expect: sick
# symptom: the VAE loss goes down and settles at once, but every reconstruction is the same blurred mean image and the KL is zero
# axis: loss
# cause: the reconstruction error is averaged over pixels while the KL is summed over latents, so the KL weighs about a thousand times too much and the posterior collapses to the prior
# says: posterior collaps|collaps\w*[^.\n]{0,40}(prior|posterior|latent|KL)|(latent|encoder)[^.\n]{0,40}collaps|\bKL\b[^.\n]{0,80}(weight|scale|domina|too (large|strong|heavy|high|much)|zero|vanish|0\b|beta|overwhelm|balance|relative)|(weight|scale|balance|beta)[^.\n]{0,60}\bKL\b|(reconstruction|recon)[^.\n]{0,60}(mean|averag|too (small|weak)|sum|pixel|scale|weight)|latent[^.\n]{0,60}(unused|ignored|inactive|dead|carr(y|ies) no)
# onset_step: 0
# fix: sum the reconstruction error over pixels (or scale the KL by 1 / number of pixels)
# mended: the reconstruction error is summed over the pixels of an image
import os
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(20)

SIDE, LATENT, BATCH, STEPS = 32, 12, 32, 500


def draw_shapes(n):
    yy, xx = torch.meshgrid(torch.linspace(-1, 1, SIDE), torch.linspace(-1, 1, SIDE), indexing="ij")
    cx, cy = (torch.rand(2, n, 1, 1) - 0.5) * 1.1
    size = 0.2 + 0.3 * torch.rand(n, 1, 1)
    ratio = 0.6 + 0.8 * torch.rand(n, 1, 1)
    angle = torch.rand(n, 1, 1) * 3.14
    u = (xx - cx) * angle.cos() + (yy - cy) * angle.sin()
    v = (yy - cy) * angle.cos() - (xx - cx) * angle.sin()
    round_ = (u / size) ** 2 + (v / (size * ratio)) ** 2
    square = torch.maximum((u / size).abs(), (v / (size * ratio)).abs()) ** 2
    pick = (torch.rand(n, 1, 1) < 0.5).float()
    d = pick * round_ + (1 - pick) * square
    return torch.sigmoid((1 - d) * 6)[:, None]


class Encoder(nn.Module):
    def __init__(self, c=16):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, c, 4, 2, 1),
            nn.SiLU(),
            nn.Conv2d(c, 2 * c, 4, 2, 1),
            nn.SiLU(),
            nn.Conv2d(2 * c, 4 * c, 4, 2, 1),
            nn.SiLU(),
            nn.Flatten(),
            nn.Linear(4 * c * 16, 128),
            nn.SiLU(),
        )
        self.mu, self.logvar = nn.Linear(128, LATENT), nn.Linear(128, LATENT)

    def forward(self, x):
        h = self.net(x)
        return self.mu(h), self.logvar(h)


class Decoder(nn.Module):
    def __init__(self, c=16):
        super().__init__()
        self.c = c
        self.fc = nn.Sequential(nn.Linear(LATENT, 128), nn.SiLU(), nn.Linear(128, 4 * c * 16), nn.SiLU())
        self.net = nn.Sequential(
            nn.ConvTranspose2d(4 * c, 2 * c, 4, 2, 1),
            nn.SiLU(),
            nn.ConvTranspose2d(2 * c, c, 4, 2, 1),
            nn.SiLU(),
            nn.ConvTranspose2d(c, 1, 4, 2, 1),
        )

    def forward(self, z):
        return self.net(self.fc(z).view(-1, 4 * self.c, 4, 4))


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.dec = Encoder(), Decoder()

    def forward(self, x):
        mu, logvar = self.enc(x)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        return self.dec(z), mu, logvar


def vae_loss(logits, x, mu, logvar):
    rec = F.binary_cross_entropy_with_logits(logits, x, reduction="none").flatten(1)
    rec = (rec.sum(1) if MENDED else rec.mean(1)).mean()
    kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(1).mean()
    return rec + kl, rec, kl


def main():
    train = draw_shapes(3000)
    model = VAE()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(STEPS):
        x = train[torch.randint(0, len(train), (BATCH,))]
        logits, mu, logvar = model(x)
        loss, rec, kl = vae_loss(logits, x, mu, logvar)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0:
            print(f"step {step:4d}  loss {loss.item():.4f}  rec {rec.item():.4f}  kl {kl.item():.4f}")
    model.eval()
    with torch.no_grad():
        x = draw_shapes(400)
        mu, _ = model.enc(x)
        err = F.mse_loss(model.dec(mu).sigmoid(), x).item()
    print(
        f"reconstruction mse {err:.4f}  (pixel variance {(x - x.mean(0)).pow(2).mean():.4f})"
        f"  active latents {(mu.var(0) > 0.01).sum().item()} of {LATENT}"
    )


if __name__ == "__main__":
    main()
