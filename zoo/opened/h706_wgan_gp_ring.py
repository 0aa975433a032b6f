# expect: healthy
# symptom: resembles diverging GAN training: the critic's loss is negative, the generator's loss drifts and changes its sign, neither converges
# axis: loss
# cause: healthy: a Wasserstein critic's outputs are unbounded scores whose level is arbitrary; only the difference between real and fake counts, it shrinks, and the samples cover all modes
# says: none
# onset_step: none
# fix: none
# mended: none
import argparse
import math

import torch
import torch.nn as nn
from torch import autograd


def ring(n, modes=8, radius=2.0, sd=0.1):
    k = torch.randint(0, modes, (n,))
    a = 2 * math.pi * k / modes
    return radius * torch.stack([a.cos(), a.sin()], 1) + sd * torch.randn(n, 2)


def mlp(cin, cout, width=64):
    return nn.Sequential(
        nn.Linear(cin, width),
        nn.ReLU(),
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Linear(width, cout),
    )


def gradient_penalty(critic, real, fake):
    u = torch.rand(len(real), 1)
    mid = (u * real + (1 - u) * fake).requires_grad_(True)
    grad = autograd.grad(critic(mid).sum(), mid, create_graph=True)[0]
    return ((grad.norm(2, dim=1) - 1) ** 2).mean()


@torch.no_grad()
def quality(gen, nz, modes=8, radius=2.0):
    x = gen(torch.randn(2000, nz))
    a = 2 * math.pi * torch.arange(modes) / modes
    centres = radius * torch.stack([a.cos(), a.sin()], 1)
    d, k = torch.cdist(x, centres).min(1)
    good = d < 0.5
    covered = (torch.bincount(k[good], minlength=modes) > 40).sum().item()
    return good.float().mean().item(), covered


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--iterations", type=int, default=500)
    p.add_argument("--critic-steps", type=int, default=4)
    p.add_argument("--lambda-gp", type=float, default=1.0)
    p.add_argument("--batch", type=int, default=128)
    p.add_argument("--nz", type=int, default=4)
    p.add_argument("--lr", type=float, default=1e-3)
    args = p.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(17)

    gen, critic = mlp(args.nz, 2), mlp(2, 1)
    opt_g = torch.optim.Adam(gen.parameters(), lr=args.lr, betas=(0.0, 0.9))
    opt_c = torch.optim.Adam(critic.parameters(), lr=args.lr, betas=(0.0, 0.9))
    for it in range(1, args.iterations + 1):
        if it == int(0.7 * args.iterations):
            for opt in (opt_g, opt_c):
                opt.param_groups[0]["lr"] = args.lr * 0.2
        for _ in range(args.critic_steps):
            real = ring(args.batch)
            with torch.no_grad():
                fake = gen(torch.randn(args.batch, args.nz))
            w = critic(real).mean() - critic(fake).mean()
            loss_c = -w + args.lambda_gp * gradient_penalty(critic, real, fake)
            opt_c.zero_grad()
            loss_c.backward()
            opt_c.step()
        for q in critic.parameters():
            q.requires_grad_(False)
        loss_g = -critic(gen(torch.randn(args.batch, args.nz))).mean()
        opt_g.zero_grad()
        loss_g.backward()
        opt_g.step()
        for q in critic.parameters():
            q.requires_grad_(True)
        if it % 50 == 0 or it == 1:
            good, covered = quality(gen, args.nz)
            print(
                f"it {it:4d} critic loss {loss_c.item():+.4f} W {w.item():.4f} generator loss {loss_g.item():+.4f} "
                f"near a mode {good:.3f} modes {covered}/8"
            )


if __name__ == "__main__":
    main()
