# expect: healthy
# symptom: both adversarial losses stay flat or rise, as in a collapsed or diverging GAN
# axis: none
"""Small GAN for a two-dimensional mixture of blobs; quality by sliced Wasserstein distance."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
SEED, ROUNDS, BATCH, NOISE, R1 = 2, 400, 256, 8, 0.1


def real_points(n, gen):
    k = torch.randint(0, 5, (n,), generator=gen)
    ang = k * (2 * math.pi / 5)
    centre = torch.stack([torch.cos(ang), torch.sin(ang)], dim=1)
    return 1.5 * centre + 0.25 * torch.randn(n, 2, generator=gen) + torch.tensor([0.5, -0.3])


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(NOISE, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, 2))

    def forward(self, n):
        return self.net(torch.randn(n, NOISE))


def gradient_penalty(critic, real):
    real = real.requires_grad_(True)
    (grad,) = torch.autograd.grad(critic(real).sum(), real, create_graph=True)
    return grad.pow(2).sum(1).mean()


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(2, 96),
            nn.LeakyReLU(0.2),
            nn.Linear(96, 96),
            nn.LeakyReLU(0.2),
            nn.Linear(96, 1),
        )

    def forward(self, x):
        return self.net(x).squeeze(-1)


@torch.no_grad()
def sliced_w(a, b, n_dir=64):
    ang = torch.linspace(0, math.pi, n_dir + 1)[:-1]
    d = torch.stack([torch.cos(ang), torch.sin(ang)])
    return ((a @ d).sort(0).values - (b @ d).sort(0).values).abs().mean().item()


def main():
    torch.manual_seed(SEED)
    data_gen = torch.Generator().manual_seed(SEED)
    gen, critic = Generator(), Critic()
    average = torch.optim.swa_utils.AveragedModel(gen, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.97))
    opt_g = torch.optim.Adam(gen.parameters(), lr=1e-3, betas=(0.5, 0.95))
    opt_d = torch.optim.Adam(critic.parameters(), lr=2e-3, betas=(0.5, 0.95))
    held = real_points(2000, data_gen)
    print(
        f"start distance {sliced_w(gen(2000), held):.4f} "
        f"(two real sets {sliced_w(real_points(2000, data_gen), held):.4f})"
    )
    for r in range(1, ROUNDS + 1):
        real, fake = real_points(BATCH, data_gen), gen(BATCH)
        loss_d = F.softplus(-critic(real)).mean() + F.softplus(critic(fake.detach())).mean()
        loss_d = loss_d + 0.5 * R1 * gradient_penalty(critic, real)
        opt_d.zero_grad()
        loss_d.backward()
        opt_d.step()

        critic.requires_grad_(False)
        loss_g = F.softplus(-critic(gen(BATCH))).mean()
        opt_g.zero_grad()
        loss_g.backward()
        opt_g.step()
        critic.requires_grad_(True)
        average.update_parameters(gen)
        if r % 25 == 0 or r == 1:
            print(
                f"round {r} loss_d {loss_d.item():.4f} loss_g {loss_g.item():.4f} "
                f"distance {sliced_w(gen(2000), held):.4f}"
            )
    print(f"final distance {sliced_w(average(2000), held):.4f}")


if __name__ == "__main__":
    main()
