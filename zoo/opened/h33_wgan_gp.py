# expect: healthy
# symptom: the critic's loss is negative and rises while the generator's loss wanders without falling, as if a term had the wrong sign (WGAN-GP)
# axis: loss
# cause: none
import torch
from torch import nn

torch.manual_seed(50)


def real(n):
    c = torch.tensor([[2.0, 0.0], [-2.0, 0.0], [0.0, 2.0], [0.0, -2.0]])
    return c[torch.randint(4, (n,))] + 0.15 * torch.randn(n, 2)


def mlp(i, o):
    return nn.Sequential(nn.Linear(i, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, o))


gen, critic = mlp(4, 2), mlp(2, 1)
og = torch.optim.Adam(gen.parameters(), lr=5e-4, betas=(0.0, 0.9))
oc = torch.optim.Adam(critic.parameters(), lr=5e-4, betas=(0.0, 0.9))


def penalty(a, b):
    w = torch.rand(len(a), 1)
    m = (w * a + (1 - w) * b).requires_grad_(True)
    (grad,) = torch.autograd.grad(critic(m).sum(), m, create_graph=True)
    return ((grad.norm(dim=1) - 1) ** 2).mean()


for it in range(800):
    for _ in range(3):
        r, f = real(96), gen(torch.randn(96, 4)).detach()
        lc = critic(f).mean() - critic(r).mean() + 10 * penalty(r, f)
        oc.zero_grad()
        lc.backward()
        oc.step()
    lg = -critic(gen(torch.randn(96, 4))).mean()
    og.zero_grad()
    lg.backward()
    og.step()
    if it % 80 == 0 or it == 799:
        with torch.no_grad():
            s, r = gen(torch.randn(500, 4)), real(500)
            d = torch.cdist(s, r).min(1).values.mean() + torch.cdist(r, s).min(1).values.mean()
        print(f"it {it} critic {lc.item():.4f} generator {lg.item():.4f} distance {d.item():.4f}")
