# expect: healthy
# symptom: the critic's loss is negative, grows and then moves about without going to zero, the generator's loss wanders and changes sign
# axis: none
# mended: none
import argparse
import math

import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)


def sample_ring(n, g, k=8, radius=2.0, std=0.1):
    a = torch.randint(0, k, (n,), generator=g) * (2 * math.pi / k)
    centre = torch.stack([a.cos(), a.sin()], 1) * radius
    return centre + std * torch.randn(n, 2, generator=g)


def mlp(d_in, hidden, d_out, act):
    return nn.Sequential(
        nn.Linear(d_in, hidden),
        act(),
        nn.Linear(hidden, hidden),
        act(),
        nn.Linear(hidden, hidden),
        act(),
        nn.Linear(hidden, d_out),
    )


def gradient_penalty(critic, real, fake):
    eps = torch.rand(len(real), 1)
    mix = (eps * real + (1 - eps) * fake).requires_grad_(True)
    (grad,) = torch.autograd.grad(critic(mix).sum(), mix, create_graph=True)
    return ((grad.norm(2, dim=1) - 1) ** 2).mean()


def sliced_distance(a, b, n_proj=64):
    th = torch.arange(n_proj) * (math.pi / n_proj)
    p = torch.stack([th.cos(), th.sin()])
    return ((a @ p).sort(0).values - (b @ p).sort(0).values).abs().mean().item()


class WGANTrainer:
    def __init__(self, args):
        self.args = args
        self.data_rng = torch.Generator().manual_seed(args.seed)
        self.gen = mlp(args.z_dim, args.hidden, 2, nn.ReLU)
        self.critic = mlp(2, args.hidden, 1, lambda: nn.LeakyReLU(0.2))
        self.opt_g = torch.optim.Adam(self.gen.parameters(), lr=args.lr, betas=(0.5, 0.9))
        self.opt_c = torch.optim.Adam(self.critic.parameters(), lr=args.lr, betas=(0.5, 0.9))

    def noise(self):
        return torch.randn(self.args.batch, self.args.z_dim)

    def critic_step(self):
        real = sample_ring(self.args.batch, self.data_rng)
        with torch.no_grad():
            fake = self.gen(self.noise())
        gp = gradient_penalty(self.critic, real, fake)
        w = self.critic(real).mean() - self.critic(fake).mean()
        loss = -w + self.args.gp_weight * gp
        self.opt_c.zero_grad()
        loss.backward()
        self.opt_c.step()
        return loss.item(), w.item()

    def generator_step(self):
        for p in self.critic.parameters():
            p.requires_grad_(False)
        loss = -self.critic(self.gen(self.noise())).mean()
        self.opt_g.zero_grad()
        loss.backward()
        self.opt_g.step()
        for p in self.critic.parameters():
            p.requires_grad_(True)
        return loss.item()

    @torch.no_grad()
    def evaluate(self):
        real = sample_ring(1000, torch.Generator().manual_seed(99))
        fake = self.gen(torch.randn(1000, self.args.z_dim, generator=torch.Generator().manual_seed(98)))
        modes = (
            torch.stack([torch.tensor([math.cos(k * math.pi / 4), math.sin(k * math.pi / 4)]) for k in range(8)]) * 2
        )
        near = torch.cdist(fake, modes)
        hit = near.argmin(1)[near.min(1).values < 0.4].unique()
        return sliced_distance(real, fake), len(hit)

    def run(self):
        for it in range(self.args.iters):
            for _ in range(self.args.n_critic):
                loss_c, w = self.critic_step()
            loss_g = self.generator_step()
            if it % 10 == 0 or it == self.args.iters - 1:
                dist, modes = self.evaluate()
                print(
                    f"iter {it:4d} critic {loss_c:.4f} W {w:.4f} gen {loss_g:.4f} "
                    f"sliced dist {dist:.4f} modes {modes}/8",
                    flush=True,
                )


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--iters", type=int, default=180)
    p.add_argument("--n-critic", type=int, default=4)
    p.add_argument("--batch", type=int, default=128)
    p.add_argument("--hidden", type=int, default=64)
    p.add_argument("--z-dim", type=int, default=4)
    p.add_argument("--gp-weight", type=float, default=1.0)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--seed", type=int, default=0)
    args = p.parse_args()
    torch.manual_seed(args.seed)
    np.random.seed(args.seed)
    WGANTrainer(args).run()
