# expect: sick
# symptom: the loss falls quickly for about 120 steps, then stalls completely; renders stay blurred however long it trains
# axis: optimizer
# cause: the learning-rate schedule (gamma 0.98 meant per epoch) is stepped at every batch, so the rate is practically zero after some 150 steps
# says: (schedul\w*|decay|gamma|exponentiallr|lr|learning.rate).{0,120}(every|each|per).{0,15}(batch|step|iteration|optimi[sz]er)|(learning.rate|\blr\b).{0,80}(decay\w*|collaps\w*|vanish\w*|near(ly)? zero|to zero|too (fast|quick|early|small|low)|tiny|shrink\w*|drops?|falls?|annealed|dies)|(schedul\w*).{0,60}(too (often|fast|early|soon)|wrong (place|loop)|inner loop|per epoch)
# onset_step: 150
# fix: call scheduler.step() once per epoch
# mended: scheduler.step() is called at the end of each epoch
import os
import math
import torch
import torch.nn as nn

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(3)

NEAR, FAR, N_SAMPLES, RAYS = 1.0, 5.0, 32, 192
CENTRES = torch.tensor([[0.0, 0.0, 0.0], [0.8, 0.3, -0.3], [-0.6, -0.5, 0.5], [0.1, 0.8, 0.4]])
RADII = torch.tensor([0.55, 0.35, 0.4, 0.25])
COLOURS = torch.tensor([[0.9, 0.2, 0.2], [0.2, 0.8, 0.3], [0.2, 0.3, 0.9], [0.9, 0.8, 0.1]])


def scene(p):
    """Analytic field: soft balls with striped colours."""
    d = (p[..., None, :] - CENTRES).norm(dim=-1)
    sigma = 14.0 * torch.sigmoid((RADII - d) * 25)
    w = sigma / (sigma.sum(-1, keepdim=True) + 1e-6)
    stripe = 0.75 + 0.25 * torch.sin(9 * p.sum(-1, keepdim=True))
    return sigma.sum(-1), (w @ COLOURS) * stripe


def composite(sigma, rgb, t):
    delta = t[..., 1:] - t[..., :-1]
    delta = torch.cat([delta, torch.full_like(delta[..., :1], 0.1)], -1)
    alpha = 1 - torch.exp(-sigma * delta)
    trans = torch.cumprod(torch.cat([torch.ones_like(alpha[..., :1]), 1 - alpha + 1e-10], -1), -1)[..., :-1]
    w = alpha * trans
    return (w[..., None] * rgb).sum(-2) + (1 - w.sum(-1, keepdim=True))


def sample_rays(n):
    """Cameras on a sphere of radius 3 that look at points near the origin."""
    o = torch.randn(n, 3)
    o = 3 * o / o.norm(dim=-1, keepdim=True)
    look = torch.rand(n, 3) * 2.4 - 1.2
    d = look - o
    return o, d / d.norm(dim=-1, keepdim=True)


def render(field, o, d, n_samples, jitter):
    t = torch.linspace(NEAR, FAR, n_samples).expand(len(o), n_samples)
    if jitter:
        t = t + torch.rand_like(t) * (FAR - NEAR) / n_samples
    p = o[:, None] + t[..., None] * d[:, None]
    sigma, rgb = field(p)
    return composite(sigma, rgb, t)


class Field(nn.Module):
    def __init__(self, width=64, n_freq=5):
        super().__init__()
        self.register_buffer("freqs", 2.0 ** torch.arange(n_freq))
        self.trunk = nn.Sequential(
            nn.Linear(3 + 6 * n_freq, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
        )
        self.sigma = nn.Linear(width, 1)
        self.rgb = nn.Linear(width, 3)

    def forward(self, p):
        a = (p[..., None] * self.freqs).flatten(-2)
        h = self.trunk(torch.cat([p, a.sin(), a.cos()], -1))
        return nn.functional.softplus(self.sigma(h)).squeeze(-1) * 5, torch.sigmoid(self.rgb(h))


with torch.no_grad():
    o_all, d_all = sample_rays(12000)
    rgb_all = render(scene, o_all, d_all, 96, jitter=False)
    o_val, d_val = sample_rays(800)
    rgb_val = render(scene, o_val, d_val, 96, jitter=False)

model = Field()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.98)

step = 0
for epoch in range(8):
    order = torch.randperm(len(o_all))
    for i in range(0, len(order) - RAYS + 1, RAYS):
        idx = order[i : i + RAYS]
        pred = render(model, o_all[idx], d_all[idx], N_SAMPLES, jitter=True)
        loss = ((pred - rgb_all[idx]) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if not MENDED:
            scheduler.step()
        if step % 20 == 0:
            print(f"step {step:4d} loss {loss.item():.5f}")
        step += 1
    if MENDED:
        scheduler.step()
    with torch.no_grad():
        mse = ((render(model, o_val, d_val, N_SAMPLES, jitter=False) - rgb_val) ** 2).mean().item()
    print(f"epoch {epoch} val psnr {-10 * math.log10(mse):.2f}")
