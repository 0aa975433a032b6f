# expect: healthy
# symptom: rows are sorted or grouped, which looks like an order that is not restored
# axis: none
# mended: none
import torch
import torch.nn as nn
import torch.nn.functional as F


def scene_color(o, d):
    best = torch.full((len(o),), float("inf"))
    color = torch.ones(len(o), 3)
    spheres = [((0.0, 0.0, 0.0), 0.6, (0.9, 0.2, 0.1)), ((0.6, 0.4, 0.3), 0.35, (0.1, 0.5, 0.9))]
    for c, r, rgb in spheres:
        oc = o - torch.tensor(c)
        b = (oc * d).sum(-1)
        disc = b * b - (oc * oc).sum(-1) + r * r
        t = -b - disc.clamp(min=0).sqrt()
        hit = (disc > 0) & (t < best)
        best = torch.where(hit, t, best)
        color = torch.where(hit[:, None], torch.tensor(rgb), color)
    return color


def random_rays(n):
    o = F.normalize(torch.randn(n, 3), dim=-1) * 2.5
    target = (torch.rand(n, 3) - 0.5) * 1.4
    return o, F.normalize(target - o, dim=-1)


class Field(nn.Module):
    def __init__(self, n_freq=4, width=64):
        super().__init__()
        self.register_buffer("freqs", 2.0 ** torch.arange(n_freq))
        self.net = nn.Sequential(
            nn.Linear(3 + 6 * n_freq, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 4)
        )

    def forward(self, p):
        a = (p[..., None] * self.freqs).flatten(-2)
        out = self.net(torch.cat([p, a.sin(), a.cos()], -1))
        return F.softplus(out[..., 0]), out[..., 1:].sigmoid()


def composite(t, sigma, rgb):
    delta = torch.cat([t[:, 1:] - t[:, :-1], torch.full_like(t[:, :1], 0.1)], 1)
    alpha = 1 - torch.exp(-sigma * delta)
    trans = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-7], 1), 1)
    w = alpha * trans[:, :-1]
    return (w[..., None] * rgb).sum(1) + trans[:, -1:], w


def sample_fine(t, w, n):
    pdf = w.detach() + 1e-3
    idx = torch.multinomial(pdf, n, replacement=True)
    return t.gather(1, idx) + 0.1 * (torch.rand(len(t), n) - 0.5)


def render(field, o, d, n_coarse=20, n_fine=12):
    edges = torch.linspace(1.0, 4.0, n_coarse)
    tc = edges + torch.rand(len(o), n_coarse) * (3.0 / n_coarse)
    sc, cc = field(o[:, None] + d[:, None] * tc[..., None])
    coarse, w = composite(tc, sc, cc)
    tf = sample_fine(tc, w, n_fine)
    sf, cf = field(o[:, None] + d[:, None] * tf[..., None])
    t, order = torch.cat([tc, tf], 1).sort(dim=1)
    sigma = torch.cat([sc, sf], 1).gather(1, order)
    rgb = torch.cat([cc, cf], 1).gather(1, order[..., None].expand(-1, -1, 3))
    return coarse, composite(t, sigma, rgb)[0]


torch.manual_seed(0)
field = Field()
opt = torch.optim.Adam(field.parameters(), lr=3e-3)
for step in range(1, 151):
    o, d = random_rays(192)
    gt = scene_color(o, d)
    coarse, fine = render(field, o, d)
    loss = F.mse_loss(coarse, gt) + F.mse_loss(fine, gt)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 25 == 0:
        print(f"step {step} loss {loss.item():.4f}")
