# expect: sick
# symptom: the critic's Wasserstein estimate is calm for the first 150 steps, then grows by orders of magnitude and the generated beats get worse instead of better
# axis: harness
# cause: the evaluation routine puts the critic into eval mode and never back into train mode, so spectral normalisation stops its power iteration, its sigma goes stale and the Lipschitz constraint no longer holds
# says: (spectral.?norm|power.?iteration|lipschitz|critic|discriminator)[^.]*(eval|train(ing)?[ -]?mode|stale|frozen|\.train\(\))|(eval|train(ing)?[ -]?mode|stale|\.train\(\))[^.]*(spectral|power.?iteration|lipschitz|critic|discriminator)
# onset_step: 151
# fix: call critic.train() again at the end of the evaluation
# mended: yes
"""Wasserstein GAN that learns to draw single heart beats (synthetic, 64 samples per beat)."""

import os

import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm as sn

torch.manual_seed(3)
torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"

LENGTH, Z, BATCH, STEPS, N_CRITIC = 64, 12, 80, 450, 3


def beats(n, gen):
    t = torch.linspace(0, 1, LENGTH)[None]

    def bump(centre, width, height):
        return height * torch.exp(-0.5 * ((t - centre) / width) ** 2)

    u = torch.rand(n, 5, generator=gen)
    shift = 0.06 * (u[:, :1] - 0.5)
    p = bump(0.22 + shift, 0.035, 0.15 + 0.15 * u[:, 1:2])
    qrs = bump(0.42 + shift, 0.018, 0.9 + 0.5 * u[:, 2:3]) - bump(0.47 + shift, 0.02, 0.3 * u[:, 3:4])
    tw = bump(0.70 + 1.3 * shift, 0.06, 0.2 + 0.25 * u[:, 4:5])
    return p + qrs + tw + 0.01 * torch.randn(n, LENGTH, generator=gen)


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(Z, 128),
            nn.BatchNorm1d(128),
            nn.ReLU(),
            nn.Linear(128, 192),
            nn.BatchNorm1d(192),
            nn.ReLU(),
            nn.Linear(192, LENGTH),
        )

    def forward(self, z):
        return self.net(z)


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(
            sn(nn.Conv1d(1, 24, 5, stride=2, padding=2)),
            nn.LeakyReLU(0.2),
            sn(nn.Conv1d(24, 48, 5, stride=2, padding=2)),
            nn.LeakyReLU(0.2),
        )
        self.head = nn.Sequential(sn(nn.Linear(48 * LENGTH // 4, 96)), nn.LeakyReLU(0.2), sn(nn.Linear(96, 1)))

    def forward(self, x):
        return self.head(self.conv(x[:, None]).flatten(1)).squeeze(1)


def sliced_distance(a, b, gen, n_proj=128):
    w = torch.randn(LENGTH, n_proj, generator=gen)
    w = w / w.norm(dim=0)
    return ((a @ w).sort(0).values - (b @ w).sort(0).values).abs().mean().item()


@torch.no_grad()
def evaluate(gen_net, critic, held_out, rng):
    gen_net.eval()
    critic.eval()
    fake = gen_net(torch.randn(len(held_out), Z, generator=rng))
    swd = sliced_distance(fake, held_out, rng)
    gap = (critic(held_out).mean() - critic(fake).mean()).item()
    gen_net.train()
    if MENDED:
        critic.train()
    return swd, gap


def main():
    rng = torch.Generator().manual_seed(11)
    train = beats(6000, rng)
    held_out = beats(1000, rng)
    g, c = Generator(), Critic()
    opt_g = torch.optim.Adam(g.parameters(), lr=1e-3, betas=(0.0, 0.9))
    opt_c = torch.optim.Adam(c.parameters(), lr=2e-3, betas=(0.0, 0.9))

    for step in range(1, STEPS + 1):
        for _ in range(N_CRITIC):
            real = train[torch.randint(len(train), (BATCH,), generator=rng)]
            with torch.no_grad():
                fake = g(torch.randn(BATCH, Z, generator=rng))
            loss_c = c(fake).mean() - c(real).mean()
            opt_c.zero_grad(set_to_none=True)
            loss_c.backward()
            opt_c.step()

        loss_g = -c(g(torch.randn(BATCH, Z, generator=rng))).mean()
        opt_g.zero_grad(set_to_none=True)
        loss_g.backward()
        opt_g.step()

        if step % 25 == 0:
            print(f"step {step:4d}  critic {loss_c.item():+.4f}  generator {loss_g.item():+.4f}", flush=True)
        if step % 150 == 0:
            swd, gap = evaluate(g, c, held_out, rng)
            print(f"   == eval @ {step}: sliced distance {swd:.4f}  critic gap {gap:.4f}", flush=True)


if __name__ == "__main__":
    main()
