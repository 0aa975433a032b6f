# expect: healthy
# symptom: both adversarial losses wobble about constants (1.4 and 0.7), as in a run that learns nothing
# axis: none
"""GAN on a two-dimensional sensor pattern (two interleaved arcs)."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(17)

ROUNDS, BATCH, Z = 250, 256, 4


def arcs(n, gen=None):
    t = math.pi * torch.rand(n, generator=gen)
    upper = torch.rand(n, generator=gen) < 0.5
    x = torch.where(upper, t.cos(), 1 - t.cos())
    y = torch.where(upper, t.sin(), 0.5 - t.sin())
    pts = torch.stack([x - 0.5, y - 0.25], 1)
    return pts * 1.2 + 0.08 * torch.randn(n, 2, generator=gen)


def mlp(n_in, n_out, width=96):
    return nn.Sequential(
        nn.Linear(n_in, width), nn.LeakyReLU(0.2), nn.Linear(width, width), nn.LeakyReLU(0.2), nn.Linear(width, n_out)
    )


def gradient_penalty(critic, real):
    real = real.detach().requires_grad_(True)
    score = critic(real)
    (grad,) = torch.autograd.grad(score.sum(), real, create_graph=True)
    return score, grad.pow(2).sum(1).mean()


@torch.no_grad()
def sliced_distance(a, b, n_proj=64):
    g = torch.Generator().manual_seed(0)
    d = F.normalize(torch.randn(2, n_proj, generator=g), dim=0)
    return ((a @ d).sort(0).values - (b @ d).sort(0).values).abs().mean().item()


@torch.no_grad()
def coverage(fake, real, radius=0.15):
    """Share of real points with a generated point nearby, and the reverse share."""
    near = torch.cdist(real, fake) < radius
    return near.any(1).float().mean().item(), near.any(0).float().mean().item()


def main():
    gen, critic = mlp(Z, 2), mlp(2, 1)
    mean_gen = mlp(Z, 2)
    mean_gen.load_state_dict(gen.state_dict())
    mean_gen.requires_grad_(False)
    opt_g = torch.optim.Adam(gen.parameters(), lr=2e-3, betas=(0.5, 0.9))
    opt_d = torch.optim.Adam(critic.parameters(), lr=4e-3, betas=(0.5, 0.9))
    check = torch.Generator().manual_seed(1)
    real_check, z_check = arcs(1500, check), torch.randn(1500, Z, generator=check)
    cover, precise = coverage(mean_gen(z_check), real_check)
    print(
        f"at start: distance {sliced_distance(mean_gen(z_check), real_check):.4f} "
        f"coverage {cover:.3f} precision {precise:.3f}"
    )

    for r in range(ROUNDS):
        real = arcs(BATCH)
        fake = gen(torch.randn(BATCH, Z))
        score_real, penalty = gradient_penalty(critic, real)
        loss_d = F.softplus(critic(fake.detach())).mean() + F.softplus(-score_real).mean()
        opt_d.zero_grad()
        (loss_d + 0.02 * penalty).backward()
        opt_d.step()

        # only the generator moves here
        critic.requires_grad_(False)
        loss_g = F.softplus(-critic(gen(torch.randn(BATCH, Z)))).mean()
        opt_g.zero_grad()
        loss_g.backward()
        opt_g.step()
        critic.requires_grad_(True)

        with torch.no_grad():
            for p, q in zip(mean_gen.parameters(), gen.parameters()):
                p.lerp_(q, 0.05)
        if r % 25 == 0:
            print(f"round {r:4d} loss_d {loss_d.item():.4f} loss_g {loss_g.item():.4f}")
    fake = mean_gen(z_check)
    cover, precise = coverage(fake, real_check)
    print(f"at end: distance {sliced_distance(fake, real_check):.4f} coverage {cover:.3f} precision {precise:.3f}")


if __name__ == "__main__":
    main()
