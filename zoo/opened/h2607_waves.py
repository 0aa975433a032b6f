# expect: healthy
# symptom: generator loss drifts upward and swings widely while the critic gets better (resembles a critic that overwhelms the generator, or divergence)
# axis: loss
"""GAN that learns to produce short damped oscillations (pulse shapes of a detector)."""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

LENGTH = 48


def real_pulses(n):
    t = torch.linspace(0, 1, LENGTH)
    freq = 3 + 2 * torch.randint(0, 3, (n, 1)) + 0.15 * torch.randn(n, 1)
    decay = 2 + 2 * torch.rand(n, 1)
    start = 0.05 + 0.2 * torch.rand(n, 1)
    amp = 0.7 + 0.3 * torch.rand(n, 1)
    dt = (t - start).clamp(min=0)
    return amp * torch.exp(-decay * dt) * torch.sin(2 * torch.pi * freq * dt)


def make_generator(z):
    return nn.Sequential(
        nn.Linear(z, 128),
        nn.LeakyReLU(0.2),
        nn.Linear(128, 32 * 12),
        nn.Unflatten(1, (32, 12)),
        nn.Upsample(scale_factor=2),
        nn.Conv1d(32, 32, 5, padding=2),
        nn.BatchNorm1d(32),
        nn.LeakyReLU(0.2),
        nn.Upsample(scale_factor=2),
        nn.Conv1d(32, 32, 5, padding=2),
        nn.BatchNorm1d(32),
        nn.LeakyReLU(0.2),
        nn.Conv1d(32, 1, 7, padding=3),
        nn.Tanh(),
        nn.Flatten(),
    )


def make_critic():
    return nn.Sequential(
        nn.Unflatten(1, (1, LENGTH)),
        nn.Conv1d(1, 32, 7, stride=2, padding=3),
        nn.LeakyReLU(0.2),
        nn.Conv1d(32, 64, 5, stride=2, padding=2),
        nn.LeakyReLU(0.2),
        nn.Conv1d(64, 64, 5, stride=2, padding=2),
        nn.LeakyReLU(0.2),
        nn.Flatten(),
        nn.Linear(64 * 6, 1),
    )


def r1(D, x):
    x = x.detach().requires_grad_(True)
    (g,) = torch.autograd.grad(D(x).sum(), x, create_graph=True)
    return g.pow(2).sum(1).mean()


@torch.no_grad()
def spectrum_gap(gen, z, n=4000):
    gen.eval()
    fake = gen(torch.randn(n, z))
    gen.train()
    power = lambda s: torch.fft.rfft(s).abs().mean(0)
    a, b = power(fake), power(real_pulses(n))
    spread = fake.std(0).mean() / real_pulses(n).std(0).mean()
    return ((a - b).abs().sum() / b.sum()).item(), spread.item()


def run(args):
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    G, D = make_generator(args.z), make_critic()
    og = torch.optim.Adam(G.parameters(), lr=args.lr_g, betas=(0.0, 0.9))
    od = torch.optim.Adam(D.parameters(), lr=args.lr_d, betas=(0.0, 0.9))
    print("start: spectrum gap %.3f spread %.2f" % spectrum_gap(G, args.z))
    for it in range(1, args.iters + 1):
        decay = min(1.0, 1.6 * (1 - it / args.iters) + 0.05)
        og.param_groups[0]["lr"], od.param_groups[0]["lr"] = args.lr_g * decay, args.lr_d * decay
        x = real_pulses(args.batch)
        with torch.no_grad():
            fake = G(torch.randn(args.batch, args.z))
        d_loss = F.softplus(-D(x)).mean() + F.softplus(D(fake)).mean()
        od.zero_grad()
        (d_loss + 0.5 * args.gamma * r1(D, x)).backward()
        od.step()

        g_loss = F.softplus(-D(G(torch.randn(args.batch, args.z)))).mean()
        og.zero_grad()
        g_loss.backward()
        og.step()
        if it % 25 == 0:
            print(f"iter {it} d_loss {d_loss.item():.3f} g_loss {g_loss.item():+.3f}")
        if it % 150 == 0:
            gap, spread = spectrum_gap(G, args.z)
            print(f"   spectrum gap {gap:.3f} spread {spread:.2f}")


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--iters", type=int, default=450)
    ap.add_argument("--batch", type=int, default=96)
    ap.add_argument("--z", type=int, default=24)
    ap.add_argument("--lr-g", type=float, default=8e-4, dest="lr_g")
    ap.add_argument("--lr-d", type=float, default=1.2e-3, dest="lr_d")
    ap.add_argument("--gamma", type=float, default=0.02)
    ap.add_argument("--seed", type=int, default=13)
    run(ap.parse_args())
