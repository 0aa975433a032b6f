# expect: healthy
# fault: none, the sound half is reordered within the batch on purpose to make unmatched pairs labelled 0, and the points of a set are reordered as augmentation, where order does not matter
# onset_step: none
# says: (?!)
import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(6)

N, POINTS, BINS = 1200, 24, 20


def build(n):
    code = torch.randn(n, 4)
    scale = 0.4 + torch.sigmoid(code[:, :3])
    cloud = torch.randn(n, POINTS, 3) * scale[:, None, :] + code[:, None, 1:4]
    basis = torch.randn(4, BINS, generator=torch.Generator().manual_seed(0))
    sound = torch.tanh(code @ basis) + 0.1 * torch.randn(n, BINS)
    return cloud, sound


class Clouds(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.phi = nn.Sequential(nn.Linear(3, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU())
        self.rho = nn.Linear(96, dim)

    def forward(self, pts):
        z = self.phi(pts)
        return self.rho(torch.cat([z.mean(1), z.amax(1)], dim=-1))


class Matcher(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.see = Clouds(dim)
        self.hear = nn.Sequential(nn.Linear(BINS, 64), nn.ReLU(), nn.Linear(64, dim))
        self.judge = nn.Sequential(nn.Linear(3 * dim, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, cloud, sound):
        a, b = self.see(cloud), self.hear(sound)
        return self.judge(torch.cat([a, b, a * b], dim=-1)).squeeze(-1)


cloud, sound = build(N)
cloud_t, sound_t = build(300)
model = Matcher()
opt = torch.optim.Adam(model.parameters(), lr=2e-3)


def pairs(c, s):
    n = len(c)
    perm = torch.randperm(n)
    own = torch.arange(n)
    y = (perm == own).float()
    x_c = torch.cat([c, c])
    x_s = torch.cat([s, s[perm]])
    return x_c, x_s, torch.cat([torch.ones(n), y])


for step in range(1, 281):
    idx = torch.randint(0, N, (48,))
    c, s = cloud[idx], sound[idx]
    c = c[:, torch.randperm(POINTS)]
    x_c, x_s, y = pairs(c, s)
    loss = F.binary_cross_entropy_with_logits(model(x_c, x_s), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 40 == 0:
        with torch.no_grad():
            a, b, t = pairs(cloud_t, sound_t)
            acc = ((model(a, b) > 0).float() == t).float().mean().item()
        print(f"step {step} loss {loss.item():.4f} pair acc {acc:.3f}")
