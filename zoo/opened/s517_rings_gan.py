# expect: sick
# symptom: the generator's loss climbs and the discriminator's goes to zero at once; the generated points stay where they were at initialisation
# axis: loss
# cause: the generator step scores fake.detach(), so no gradient reaches the generator and its optimizer has nothing to apply
# says: detach|(generator|netg|\bg\b|\bgen\b).{0,80}(no grad|without grad|never (gets?|receives?|updated|trained|moves?|changes?)|not (updated|trained|getting|receiving|connected)|does ?n.?t (move|get|receive|change|train|update)|disconnected|cut|grad\w* (is|are) none|none grad|zero grad\w* )|(graph|gradient).{0,40}(cut|broken|disconnected|severed).{0,60}(generator|fake)
# onset_step: 1
# fix: use the attached fake in the generator step: netD(fake)
# mended: with MENDED=1 the generator step scores fake without detach
import argparse
import math
import os

import torch
from torch import nn

torch.set_num_threads(1)


def real_points(n):
    k = torch.randint(0, 8, (n,)).float() * (2 * math.pi / 8)
    centres = torch.stack([k.cos(), k.sin()], -1) * 2.0
    return centres + 0.08 * torch.randn(n, 2)


def mlp(sizes, act):
    layers = []
    for a, b in zip(sizes[:-1], sizes[1:]):
        layers += [nn.Linear(a, b), act()]
    return nn.Sequential(*layers[:-1])


class RingGAN:
    def __init__(self, opt):
        self.opt = opt
        self.netG = mlp([opt.nz, 128, 128, 2], nn.ReLU)
        self.netD = mlp([2, 128, 128, 1], lambda: nn.LeakyReLU(0.2))
        self.optG = torch.optim.Adam(self.netG.parameters(), lr=opt.lr, betas=(0.5, 0.999))
        self.optD = torch.optim.Adam(self.netD.parameters(), lr=opt.lr, betas=(0.5, 0.999))
        self.criterion = nn.BCEWithLogitsLoss()

    def noise(self, n):
        return torch.randn(n, self.opt.nz)

    def train_step(self, real):
        n = real.size(0)
        ones, zeros = torch.full((n, 1), 0.9), torch.zeros(n, 1)

        # (1) discriminator
        self.netD.zero_grad()
        fake = self.netG(self.noise(n))
        errD = self.criterion(self.netD(real), ones) + self.criterion(self.netD(fake.detach()), zeros)
        errD.backward()
        self.optD.step()

        # (2) generator
        self.netG.zero_grad()
        shown = fake if os.environ.get("MENDED") == "1" else fake.detach()
        errG = self.criterion(self.netD(shown), torch.ones(n, 1))
        errG.backward()
        self.optG.step()
        return errD.item(), errG.item()

    @torch.no_grad()
    def quality(self, n=1000):
        pts = self.netG(self.noise(n))
        k = torch.arange(8).float() * (2 * math.pi / 8)
        centres = torch.stack([k.cos(), k.sin()], -1) * 2.0
        dist, which = torch.cdist(pts, centres).min(1)
        return dist.mean().item(), which[dist < 0.4].unique().numel()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--nz", type=int, default=8)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--batch", type=int, default=256)
    p.add_argument("--iters", type=int, default=800)
    p.add_argument("--seed", type=int, default=4)
    opt = p.parse_args()
    torch.manual_seed(opt.seed)
    gan = RingGAN(opt)
    for it in range(1, opt.iters + 1):
        d, g = gan.train_step(real_points(opt.batch))
        if it % 80 == 0:
            dist, modes = gan.quality()
            print(
                f"[{it}/{opt.iters}] Loss_D: {d:.3f} Loss_G: {g:.3f} | mean distance to a mode {dist:.3f}, modes hit {modes}/8"
            )


if __name__ == "__main__":
    main()
