# expect: sick
# symptom: the radiance field's loss drops for about the first 100 iterations and then stands still; renders stay blurred however long it runs
# axis: optimizer
# cause: ExponentialLR with a per-epoch factor is stepped after every iteration, so the learning rate is practically zero after a hundred iterations
# says: (learning.rate|\blr\b|scheduler|exponential.?lr|gamma)[^.]{0,160}((every|each|per|after every|after each)[ -](batch|iteration|step|update)|decay\w*|vanish\w*|zero|collaps\w*|shr[iau]nk\w*|too (small|low|fast|quick\w*|early|soon|often))|(decay\w*|stepp\w*)[^.]{0,60}(per|every|each)[ -](batch|iteration|step)
# onset_step: 100
# fix: call scheduler.step() once per epoch (or use the per-iteration factor)
# mended: scheduler.step() at the end of each epoch
import math
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
RES, VIEWS, SAMPLES = 20, 16, 24
NEAR, FAR = 1.0, 5.0

SPHERES = np.array(
    [  # x, y, z, radius, r, g, b
        [0.0, 0.0, 0.0, 0.6, 0.9, 0.2, 0.2],
        [0.8, 0.3, -0.4, 0.4, 0.2, 0.8, 0.3],
        [-0.7, -0.2, 0.5, 0.45, 0.2, 0.3, 0.9],
        [0.1, 0.9, 0.4, 0.3, 0.9, 0.8, 0.1],
    ],
    dtype=np.float32,
)


def camera_rays(angle, height):
    eye = np.array([3 * math.cos(angle), height, 3 * math.sin(angle)])
    fwd = -eye / np.linalg.norm(eye)
    right = np.cross(fwd, [0, 1, 0])
    right /= np.linalg.norm(right)
    up = np.cross(right, fwd)
    v, u = np.meshgrid(np.linspace(0.5, -0.5, RES), np.linspace(-0.5, 0.5, RES), indexing="ij")
    d = fwd + u[..., None] * right + v[..., None] * up
    d /= np.linalg.norm(d, axis=-1, keepdims=True)
    return np.broadcast_to(eye, d.shape).reshape(-1, 3), d.reshape(-1, 3)


def trace(o, d):
    """Ground truth by ray / sphere intersection, with simple diffuse shading on white."""
    col, best = np.ones((len(o), 3)), np.full(len(o), np.inf)
    for *c, r, cr, cg, cb in SPHERES:
        oc = o - np.array(c)
        b = (oc * d).sum(1)
        disc = b * b - (oc * oc).sum(1) + r * r
        t = -b - np.sqrt(np.maximum(disc, 0))
        hit = (disc > 0) & (t < best)
        n = (o + t[:, None] * d - np.array(c)) / r
        shade = 0.6 + 0.4 * n[:, 1].clip(0, 1)
        col[hit] = (shade[:, None] * np.array([cr, cg, cb]))[hit]
        best[hit] = t[hit]
    return col


def make_scene():
    packs = []
    for i in range(VIEWS):
        o, d = camera_rays(2 * math.pi * i * 0.381966, 0.4 + 1.2 * ((i * 7) % 5) / 5)
        packs.append(np.concatenate([o, d, trace(o, d)], 1))
    packs = torch.tensor(np.stack(packs), dtype=torch.float32)
    packs = packs.flatten(0, 1)
    held = torch.arange(len(packs)) % 9 == 4
    return packs[~held], packs[held]


class Field(nn.Module):
    def __init__(self, bands=4, width=64):
        super().__init__()
        self.bands = bands
        self.trunk = nn.Sequential(
            nn.Linear(3 + 6 * bands, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
        )
        self.sigma, self.rgb = nn.Linear(width, 1), nn.Linear(width, 3)

    def forward(self, p):
        e = [p] + [f(p * 2**k) for k in range(self.bands) for f in (torch.sin, torch.cos)]
        h = self.trunk(torch.cat(e, -1))
        return F.softplus(self.sigma(h).squeeze(-1)), self.rgb(h).sigmoid()


def render(field, o, d, jitter):
    edges = torch.linspace(NEAR, FAR, SAMPLES + 1)
    t = edges[:-1] + (edges[1] - edges[0]) * (torch.rand(len(o), SAMPLES) if jitter else 0.5)
    sigma, rgb = field(o[:, None] + d[:, None] * t[..., None])
    alpha = 1 - torch.exp(-4 * sigma * (edges[1] - edges[0]))
    trans = torch.cumprod(torch.cat([torch.ones(len(o), 1), 1 - alpha + 1e-10], 1), 1)[:, :-1]
    w = alpha * trans
    return (w[..., None] * rgb).sum(1) + (1 - w.sum(1, keepdim=True))


def main():
    torch.manual_seed(4)
    train, test = make_scene()
    field = Field()
    opt = torch.optim.Adam(field.parameters(), lr=5e-3)
    sched = torch.optim.lr_scheduler.ExponentialLR(opt, gamma=0.97)
    rays, epochs, step = 256, 22, 0
    for epoch in range(epochs):
        order = torch.randperm(len(train))
        for i in range(0, len(train) - rays + 1, rays):
            b = train[order[i : i + rays]]
            loss = F.mse_loss(render(field, b[:, :3], b[:, 3:6], True), b[:, 6:])
            opt.zero_grad()
            loss.backward()
            opt.step()
            if not MENDED:
                sched.step()
            if step % 25 == 0:
                print(f"epoch {epoch:2d} it {step:4d} loss {loss.item():.5f}", flush=True)
            step += 1
        if MENDED:
            sched.step()
    with torch.no_grad():
        mse = F.mse_loss(render(field, test[:, :3], test[:, 3:6], False), test[:, 6:]).item()
    print(f"held-out rays psnr {-10 * math.log10(mse):.2f} dB")


if __name__ == "__main__":
    main()
