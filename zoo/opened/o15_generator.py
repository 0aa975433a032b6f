# expect: healthy
# symptom: rows that are blended, which looks like labels that are not
# axis: none
# mended: none
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(13)
torch.set_num_threads(1)

N_CLASS, Z = 3, 4


def real_batch(n):
    y = torch.randint(0, N_CLASS, (n,))
    angle = 2.0944 * y.float()
    centre = 2 * torch.stack([angle.cos(), angle.sin()], 1)
    return centre + 0.15 * torch.randn(n, 2), y


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(Z + N_CLASS, 48), nn.ReLU(), nn.Linear(48, 2))

    def forward(self, z, y):
        return self.net(torch.cat([z, F.one_hot(y, N_CLASS).float()], 1))


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2 + N_CLASS, 48), nn.LeakyReLU(0.2), nn.Linear(48, 1))

    def forward(self, x, y):
        return self.net(torch.cat([x, F.one_hot(y, N_CLASS).float()], 1)).squeeze(1)


def gradient_penalty(critic, real, fake, y):
    eps = torch.rand(len(real), 1)
    between = (eps * real + (1 - eps) * fake).requires_grad_()
    score = critic(between, y)
    (grad,) = torch.autograd.grad(score.sum(), between, create_graph=True)
    return ((grad.norm(dim=1) - 1) ** 2).mean()


gen, critic = Generator(), Critic()
g_opt = torch.optim.Adam(gen.parameters(), lr=6e-3, betas=(0.5, 0.9))
c_opt = torch.optim.Adam(critic.parameters(), lr=6e-3, betas=(0.5, 0.9))

for it in range(1, 151):
    for _ in range(2):
        real, y = real_batch(64)
        fake = gen(torch.randn(64, Z), y).detach()
        gap = critic(fake, y).mean() - critic(real, y).mean()
        c_loss = gap + 2 * gradient_penalty(critic, real, fake, y)
        c_opt.zero_grad()
        c_loss.backward()
        c_opt.step()

    y = torch.randint(0, N_CLASS, (64,))
    z = torch.randn(64, Z)
    t = torch.rand(64, 1)
    path = F.normalize(t * z + (1 - t) * z[torch.randperm(64)], dim=1) * Z**0.5
    g_loss = -critic(gen(z, y), y).mean() - 0.2 * critic(gen(path, y), y).mean()
    g_opt.zero_grad()
    g_loss.backward()
    g_opt.step()
    if it % 25 == 0:
        with torch.no_grad():
            x, y = real_batch(200)
            dist = torch.cdist(gen(torch.randn(200, Z), y), x).min(1).values.mean()
        print(f"iter {it} critic {c_loss.item():+.3f} gen {g_loss.item():+.3f} distance to data {dist:.3f}")
