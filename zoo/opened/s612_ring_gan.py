# expect: sick
# symptom: the adversarial game does not settle; generated points do not match the data, modes are missed
# axis: harness
# cause: the gradients are cleared once per iteration, so the generator's backward pass leaves its gradient in the discriminator's parameters and the discriminator step applies both
# says: ((generator|g_?loss|adversarial).{0,120}(leak|accumulat|left|leave|leftover|stale|contaminat|pollut|add|remain|not (zeroed|cleared)|mix).{0,120}(discriminator|critic|\bD\b)|(discriminator|critic|\bD\b|opt_?d).{0,120}(stale|leftover|left over|accumulat|leak|contaminat|pollut|not (zeroed|cleared)|never (zeroed|cleared)|zero.?grad|uncleared|mixed).{0,120}(generator|grad)|zero.?grad.{0,120}(missing|not called|before the discriminator|between|late|early|wrong place|misplac)|(missing|no|without|forgot\w*).{0,40}zero.?grad|(stale|leftover|accumulat\w*|leak\w*|uncleared).{0,40}grad\w*.{0,80}(discriminator|critic))
# onset_step: 1
# fix: call opt_d.zero_grad() right before the discriminator's backward pass
# mended: with MENDED=1 opt_d.zero_grad() is called before d_loss.backward()
import argparse
import math
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"


def sample_real(n, gen):
    k = torch.randint(0, 8, (n,), generator=gen)
    ang = k.float() * (2 * math.pi / 8)
    centers = torch.stack([ang.cos(), ang.sin()], 1) * 2.0
    return centers + 0.12 * torch.randn(n, 2, generator=gen)


def mlp(i, o, h=128, act=nn.ReLU):
    return nn.Sequential(nn.Linear(i, h), act(), nn.Linear(h, h), act(), nn.Linear(h, o))


class Generator(nn.Module):
    def __init__(self, z_dim):
        super().__init__()
        self.z_dim = z_dim
        self.net = mlp(z_dim, 2)

    def forward(self, z):
        return self.net(z)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = mlp(2, 1, act=lambda: nn.LeakyReLU(0.2))

    def forward(self, x):
        return self.net(x).squeeze(1)


@torch.no_grad()
def evaluate(g, gen):
    pts = g(torch.randn(2000, g.z_dim, generator=gen))
    ang = torch.arange(8) * (2 * math.pi / 8)
    centers = torch.stack([ang.cos(), ang.sin()], 1) * 2.0
    dist, near = torch.cdist(pts, centers).min(1)
    good = dist < 0.4
    hits = torch.bincount(near[good], minlength=8)
    return good.float().mean().item(), int((hits > 20).sum())


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--iters", type=int, default=600)
    p.add_argument("--batch", type=int, default=256)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--z-dim", type=int, default=8)
    p.add_argument("--seed", type=int, default=0)
    args = p.parse_args()

    torch.manual_seed(args.seed)
    gen = torch.Generator().manual_seed(args.seed + 1)
    g, d = Generator(args.z_dim), Discriminator()
    opt_g = torch.optim.Adam(g.parameters(), lr=args.lr, betas=(0.5, 0.99))
    opt_d = torch.optim.Adam(d.parameters(), lr=args.lr, betas=(0.5, 0.99))
    ones, zeros = torch.ones(args.batch), torch.zeros(args.batch)

    for it in range(1, args.iters + 1):
        opt_g.zero_grad()
        opt_d.zero_grad()

        real = sample_real(args.batch, gen)
        fake = g(torch.randn(args.batch, args.z_dim, generator=gen))

        # generator
        g_loss = F.binary_cross_entropy_with_logits(d(fake), ones)
        g_loss.backward()
        opt_g.step()

        # discriminator
        if MENDED:
            opt_d.zero_grad()
        real_loss = F.binary_cross_entropy_with_logits(d(real), ones)
        fake_loss = F.binary_cross_entropy_with_logits(d(fake.detach()), zeros)
        d_loss = real_loss + fake_loss
        d_loss.backward()
        opt_d.step()

        if it % 50 == 0:
            quality, modes = evaluate(g, gen)
            print(
                f"iter {it} d_loss {d_loss.item():.3f} g_loss {g_loss.item():.3f} "
                f"on_mode {quality:.3f} modes {modes}/8",
                flush=True,
            )


if __name__ == "__main__":
    main()
