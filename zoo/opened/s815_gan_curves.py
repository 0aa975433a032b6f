# expect: sick
# symptom: the discriminator loss sinks to its floor and the generator loss keeps growing, samples stay random noise
# axis: model
# cause: the detached fake batch made for the discriminator step is used again in the generator step, so no gradient reaches the generator and it never changes
# says: detach|(generator|\bG\b|gen\b|fake)[\s\S]{0,80}(no grad|without (a )?grad|gradient[\s\S]{0,20}(never|not|n.t|none|lost|cut|no )|never (updat|train|mov|chang)|not (updat|train|mov|chang)|does ?n.t (updat|train|mov|chang)|frozen|None|(graph|autograd)[\s\S]{0,20}(cut|broken))|(no|zero|missing) gradients?[\s\S]{0,50}(generator|\bG\b|gen\b)|cut (off )?(from )?the graph
# onset_step: 1
# fix: run the generator again with gradients for its own step (detach only what the discriminator sees)
# mended: with MENDED=1 the generator step makes its own fake batch with gradients
import argparse
import math
import os

import torch
import torch.nn as nn

torch.set_num_threads(1)


def real_curves(n, points):
    """One period of a noisy sinusoid with random amplitude and phase: amplitude in 0.6..1, offset 0.5."""
    t = torch.linspace(0, 2 * math.pi, points)[None]
    amp = 0.6 + 0.4 * torch.rand(n, 1)
    phase = torch.rand(n, 1) * math.pi / 2
    return amp * torch.sin(t + phase) + 0.5 + 0.03 * torch.randn(n, points)


class Generator(nn.Module):
    def __init__(self, z_dim, points):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(z_dim, 64),
            nn.BatchNorm1d(64),
            nn.ReLU(),
            nn.Linear(64, 64),
            nn.BatchNorm1d(64),
            nn.ReLU(),
            nn.Linear(64, points),
        )

    def forward(self, z):
        return self.net(z)


class Discriminator(nn.Module):
    def __init__(self, points):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(points, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1)
        )

    def forward(self, x):
        return self.net(x).squeeze(1)


@torch.no_grad()
def sliced_distance(a, b, n_proj=64):
    w = torch.randn(a.size(1), n_proj)
    w = w / w.norm(dim=0)
    return ((a @ w).sort(0).values - (b @ w).sort(0).values).abs().mean().item()


class GANTrainer:
    def __init__(self, args):
        self.args = args
        self.G = Generator(args.z_dim, args.points)
        self.D = Discriminator(args.points)
        self.opt_g = torch.optim.Adam(self.G.parameters(), lr=args.lr_g, betas=(0.5, 0.999))
        self.opt_d = torch.optim.Adam(self.D.parameters(), lr=args.lr_d, betas=(0.5, 0.999))
        self.bce = nn.BCEWithLogitsLoss()

    def sample(self, n):
        return self.G(torch.randn(n, self.args.z_dim))

    def train_step(self):
        n = self.args.batch
        ones, zeros = torch.ones(n), torch.zeros(n)
        real = real_curves(n, self.args.points)
        fake = self.sample(n).detach()

        self.opt_d.zero_grad()
        d_loss = self.bce(self.D(real), 0.9 * ones) + self.bce(self.D(fake), zeros)
        d_loss.backward()
        self.opt_d.step()

        if os.environ.get("MENDED") == "1":
            fake = self.sample(n)
        self.opt_g.zero_grad()
        g_loss = self.bce(self.D(fake), ones)
        g_loss.backward()
        self.opt_g.step()
        return d_loss.item(), g_loss.item()

    def fit(self):
        for it in range(1, self.args.iters + 1):
            d, g = self.train_step()
            if it % 50 == 0 or it == 1:
                dist = sliced_distance(self.sample(1000), real_curves(1000, self.args.points))
                print(f"iter {it:4d} d_loss {d:.4f} g_loss {g:.4f} distance to data {dist:.4f}")


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--iters", type=int, default=800)
    ap.add_argument("--batch", type=int, default=128)
    ap.add_argument("--z-dim", dest="z_dim", type=int, default=8)
    ap.add_argument("--points", type=int, default=24)
    ap.add_argument("--lr-g", dest="lr_g", type=float, default=2e-3)
    ap.add_argument("--lr-d", dest="lr_d", type=float, default=1e-3)
    ap.add_argument("--seed", type=int, default=0)
    a = ap.parse_args()
    torch.manual_seed(a.seed)
    GANTrainer(a).fit()
