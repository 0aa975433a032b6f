# expect: sick
# symptom: the generator never improves: its samples stay the same grey noise, while the discriminator's losses move
# axis: optimizer
# cause: the generator's optimizer was built from the discriminator's parameters (copy and paste), so the generator's weights are never updated
# says: (generator|\bnet_?g\b|\bG\b|opt(imizer)?_?g\b).{0,100}(not|never|no|n't|missing|absent|wrong|left out|without|lacks?|frozen|unchanged|discriminator|net_?d\b|0 of|zero of|outside|static).{0,80}(optimi[sz]er|param\w*|updat\w*|train\w*|step|move\w*|weights?)|optimi[sz]er.{0,60}(generator|wrong (param\w*|model|network|module)|discriminator('s)? param\w*|net_?d\b|lacks?|miss\w*|does not (hold|have|contain|cover|include)|not given|without)|param\w*.{0,60}((not|never|absent|missing).{0,30}(in|from|by|given|passed|registered|held|handed).{0,20}optimi[sz]er|never (updated|stepped))
# onset_step: 1
# fix: build the generator's optimizer from netG.parameters()
# mended: opt_g is built from netG.parameters()
import os

import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(99)
MENDED = os.environ.get("MENDED") == "1"
SIZE, NZ, BATCH = 16, 24, 32


def make_data(n=2048):
    yy, xx = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
    c = torch.rand(n, 2) * (SIZE - 6) + 3
    r = torch.rand(n) + 1.8
    d2 = (yy - c[:, :1, None]) ** 2 + (xx - c[:, 1:, None]) ** 2
    return (2 * torch.exp(-d2 / (2 * r[:, None, None] ** 2)) - 1).unsqueeze(1)


class Generator(nn.Module):
    def __init__(self, w=16):
        super().__init__()
        self.main = nn.Sequential(
            nn.ConvTranspose2d(NZ, 2 * w, 4, 1, 0, bias=False),
            nn.BatchNorm2d(2 * w),
            nn.ReLU(True),
            nn.ConvTranspose2d(2 * w, w, 4, 2, 1, bias=False),
            nn.BatchNorm2d(w),
            nn.ReLU(True),
            nn.ConvTranspose2d(w, 1, 4, 2, 1),
            nn.Tanh(),
        )

    def forward(self, z):
        return self.main(z)


class Discriminator(nn.Module):
    def __init__(self, w=16):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(1, w, 4, 2, 1),
            nn.LeakyReLU(0.2, True),
            nn.Conv2d(w, 2 * w, 4, 2, 1),
            nn.LeakyReLU(0.2, True),
            nn.Conv2d(2 * w, 1, 4, 1, 0),
        )

    def forward(self, x):
        return self.main(x).view(-1)


def weights_init(m):
    if isinstance(m, (nn.Conv2d, nn.ConvTranspose2d)):
        nn.init.normal_(m.weight, 0.0, 0.05)


@torch.no_grad()
def moments_gap(netG, data, z):
    fake = netG(z)
    gap_mean = (fake.mean(0) - data.mean(0)).abs().mean()
    gap_std = (fake.std(0) - data.std(0)).abs().mean()
    return (gap_mean + gap_std).item()


data = make_data()
netG, netD = Generator(), Discriminator()
netG.apply(weights_init)
netD.apply(weights_init)
criterion = nn.BCEWithLogitsLoss()

opt_d = torch.optim.Adam(netD.parameters(), lr=5e-4, betas=(0.5, 0.999))
opt_g = torch.optim.Adam((netG if MENDED else netD).parameters(), lr=1e-3, betas=(0.5, 0.999))

fixed_z = torch.randn(256, NZ, 1, 1)
real_label, fake_label = torch.full((BATCH,), 0.9), torch.zeros(BATCH)

iteration = 0
for epoch in range(8):
    order = torch.randperm(len(data))
    for i in range(0, len(data), BATCH):
        real = data[order[i : i + BATCH]]
        # update D: maximise log(D(x)) + log(1 - D(G(z)))
        netD.zero_grad()
        loss_real = criterion(netD(real), real_label)
        loss_real.backward()
        fake = netG(torch.randn(BATCH, NZ, 1, 1))
        out = netD(fake.detach())
        loss_fake = criterion(out, fake_label)
        loss_fake.backward()
        opt_d.step()
        # update G: maximise log(D(G(z)))
        netG.zero_grad()
        netD.zero_grad()
        loss_g = criterion(netD(fake), torch.ones(BATCH))
        loss_g.backward()
        opt_g.step()
        iteration += 1
        if iteration % 32 == 0:
            print(
                f"[{epoch}] it {iteration} loss_D {loss_real.item() + loss_fake.item():.3f} loss_G {loss_g.item():.3f} "
                f"D(G(z)) {out.sigmoid().mean().item():.3f} gap {moments_gap(netG, data, fixed_z):.3f}"
            )
