# expect: sick
# symptom: the discriminator's loss goes to zero, the generator's loss keeps climbing and the samples stay noise
# axis: loss
# cause: the fake batch is detached when it is made for the discriminator and the same detached batch is used in the generator's loss, so no gradient ever reaches the generator
# says: detach|no[ _]?grad|(generator|\bG\b|gen\b|fake)[^.]{0,70}(no gradient|without gradient|zero gradient|gradient (is|are) (none|zero|missing|cut)|never (train|updat|mov|chang|learn|receiv|get)\w*|not (being )?(train|updat|mov|receiv)\w*|do(es)?n[o']t (move|train|change)|unchanged|receives? (no|none)|gets? no)|(graph|gradient)s?[^.]{0,40}(cut|broken|sever|block|never reach|does not reach|not reach)|generator[^.]{0,30}frozen|frozen[^.]{0,20}generator
# onset_step: 1
# fix: detach the fake batch only in the discriminator's loss and let the generator's loss see the attached one
# mended: with MENDED=1 the generator step draws its fakes from the generator without detaching
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(5)


def real_batch(n, size=16):
    """One soft round blob per image, in the upper left or the lower right, in [-1, 1]."""
    g = torch.arange(size).float()
    side = (torch.rand(n) < 0.5).float()
    centre = (4.0 + 7.0 * side)[:, None] + torch.randn(n, 2) * 0.8
    r = 2.2 + 0.4 * torch.rand(n)
    d2 = (g[None, :, None] - centre[:, 0, None, None]) ** 2 + (g[None, None, :] - centre[:, 1, None, None]) ** 2
    return (2 * torch.exp(-d2 / (2 * r[:, None, None] ** 2)) - 1).unsqueeze(1)


class Generator(nn.Module):
    def __init__(self, nz=16, ngf=24):
        super().__init__()
        self.nz = nz
        self.net = nn.Sequential(
            nn.ConvTranspose2d(nz, ngf * 2, 4, 1, 0, bias=False),
            nn.BatchNorm2d(ngf * 2),
            nn.ReLU(True),
            nn.ConvTranspose2d(ngf * 2, ngf, 4, 2, 1, bias=False),
            nn.BatchNorm2d(ngf),
            nn.ReLU(True),
            nn.ConvTranspose2d(ngf, 1, 4, 2, 1),
            nn.Tanh(),
        )

    def forward(self, z):
        return self.net(z[:, :, None, None])


class Discriminator(nn.Module):
    def __init__(self, ndf=16):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, ndf, 4, 2, 1),
            nn.LeakyReLU(0.2, True),
            nn.Conv2d(ndf, ndf * 2, 4, 2, 1),
            nn.LeakyReLU(0.2, True),
            nn.Conv2d(ndf * 2, 1, 4, 1, 0),
        )

    def forward(self, x):
        return self.net(x).view(-1)


def weights_init(m):
    if isinstance(m, (nn.Conv2d, nn.ConvTranspose2d)):
        nn.init.normal_(m.weight, 0.0, 0.02)
    elif isinstance(m, nn.BatchNorm2d):
        nn.init.normal_(m.weight, 1.0, 0.02)
        nn.init.zeros_(m.bias)


class GANTrainer:
    def __init__(self, batch_size=48, lr=1e-3):
        self.G, self.D = Generator().apply(weights_init), Discriminator().apply(weights_init)
        self.opt_g = torch.optim.Adam(self.G.parameters(), lr=lr, betas=(0.5, 0.999))
        self.opt_d = torch.optim.Adam(self.D.parameters(), lr=lr / 2, betas=(0.5, 0.999))
        self.bs = batch_size
        self.fixed_z = torch.randn(256, self.G.nz)

    def step(self):
        real = real_batch(self.bs)
        z = torch.randn(self.bs, self.G.nz)
        fake = self.G(z).detach()
        d_real, d_fake = self.D(real), self.D(fake)
        ones, zeros = torch.ones(self.bs), torch.zeros(self.bs)
        loss_d = F.binary_cross_entropy_with_logits(d_real, 0.9 * ones) + F.binary_cross_entropy_with_logits(
            d_fake, zeros
        )
        self.opt_d.zero_grad()
        loss_d.backward()
        self.opt_d.step()

        self.opt_g.zero_grad()
        if MENDED:
            fake = self.G(z)
        loss_g = F.binary_cross_entropy_with_logits(self.D(fake), ones)
        loss_g.backward()
        self.opt_g.step()
        return loss_d.item(), loss_g.item()

    @torch.no_grad()
    def sample_error(self):
        """Mean distance of a sample to its nearest real image, per pixel."""
        fake, real = self.G(self.fixed_z).flatten(1), real_batch(1000).flatten(1)
        return (torch.cdist(fake, real).min(1).values.pow(2) / fake.shape[1]).mean().item()


def main():
    trainer = GANTrainer()
    for it in range(1, 401):
        ld, lg = trainer.step()
        if it % 40 == 0 or it == 1:
            print(f"[{it:4d}] loss_D {ld:.4f} loss_G {lg:.4f} nearest-real mse {trainer.sample_error():.4f}")


if __name__ == "__main__":
    main()
