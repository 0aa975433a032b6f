# expect: healthy
# symptom: resembles a diverging or oscillating loss: the critic loss goes far below zero and drifts back towards it, so it rises for most of the run, and the generator loss is negative and wanders
# axis: loss
# cause: it is a Wasserstein critic with gradient penalty: its loss is an unbounded score difference, not a likelihood, and the samples get better all the time
# says: none
# onset_step: none
# fix: none
# mended: none
import numpy as np
import torch
from torch import autograd, nn

torch.set_num_threads(1)
torch.manual_seed(9)
np.random.seed(9)

SIZE, NZ, BATCH, N_CRITIC, LAMBDA = 12, 12, 64, 3, 10.0


def bars(n):
    """Crosses: one horizontal and one vertical bar at random places."""
    img = np.full((n, 1, SIZE, SIZE), -1.0, dtype=np.float32)
    r, c = np.random.randint(1, SIZE - 2, n), np.random.randint(1, SIZE - 2, n)
    for i in range(n):
        img[i, 0, r[i] : r[i] + 2, :] = 1.0
        img[i, 0, :, c[i] : c[i] + 2] = 1.0
    return torch.from_numpy(img)


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(NZ, 128),
            nn.BatchNorm1d(128),
            nn.ReLU(),
            nn.Linear(128, 256),
            nn.BatchNorm1d(256),
            nn.ReLU(),
            nn.Linear(256, SIZE * SIZE),
            nn.Tanh(),
        )

    def forward(self, z):
        return self.net(z).view(-1, 1, SIZE, SIZE)


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, 24, 4, 2, 1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(24, 48, 4, 2, 1),
            nn.LeakyReLU(0.2),
            nn.Flatten(),
            nn.Linear(48 * 9, 64),
            nn.LeakyReLU(0.2),
            nn.Linear(64, 1),
        )

    def forward(self, x):
        return self.net(x)


def gradient_penalty(critic, real, fake):
    eps = torch.rand(real.size(0), 1, 1, 1)
    mix = (eps * real + (1 - eps) * fake).requires_grad_(True)
    score = critic(mix)
    (grad,) = autograd.grad(score.sum(), mix, create_graph=True)
    return ((grad.flatten(1).norm(2, dim=1) - 1) ** 2).mean()


@torch.no_grad()
def distance_to_data(gen, bank):
    gen.eval()
    s = gen(torch.randn(200, NZ)).flatten(1)
    gen.train()
    return torch.cdist(s, bank.flatten(1)).min(1).values.mean().item()


def main():
    data = bars(2000)
    gen, critic = Generator(), Critic()
    opt_g = torch.optim.Adam(gen.parameters(), lr=1e-3, betas=(0.0, 0.9))
    opt_c = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.0, 0.9))
    print(f"distance to data at start {distance_to_data(gen, data):.2f}")
    for it in range(1, 201):
        for _ in range(N_CRITIC):
            real = data[torch.randint(0, len(data), (BATCH,))]
            fake = gen(torch.randn(BATCH, NZ)).detach()
            loss_c = critic(fake).mean() - critic(real).mean() + LAMBDA * gradient_penalty(critic, real, fake)
            opt_c.zero_grad()
            loss_c.backward()
            opt_c.step()
        loss_g = -critic(gen(torch.randn(BATCH, NZ))).mean()
        opt_g.zero_grad()
        loss_g.backward()
        opt_g.step()
        if it % 20 == 0:
            print(
                f"{it:4d} critic {loss_c.item():8.3f} generator {loss_g.item():8.3f} distance {distance_to_data(gen, data):.2f}"
            )


if __name__ == "__main__":
    main()
