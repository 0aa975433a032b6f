# expect: sick
# symptom: nothing explodes; the validation loss of the diffusion model stops falling early and then rises, with samples worse than they should be
# axis: harness
# cause: a generator with a fixed seed is created anew in each step, so each batch gets the very same noise and timesteps and the model memorises them
# says: (same|fixed|constant|identical|repeat).{0,40}(noise|seed|timestep|generator|random|draw)|(noise|seed|timestep|generator|rng|random).{0,60}(same|fixed|constant|identical|repeat|re-?seed|every (step|batch)|each (step|batch)|anew)|re-?seed|memori[sz]
# onset_step: 1
# fix: create the generator once, before the loop
# mended: uses one generator for the whole run
import os

import numpy as np
import torch
from torch import nn

torch.manual_seed(29)
STEPS_T = 50
betas = np.linspace(1e-3, 0.15, STEPS_T)
abar = np.cumprod(1 - betas)
MENDED = os.environ.get("MENDED") == "1"
main_rng = np.random.default_rng(0)


def moons(n, rng):
    a = rng.uniform(0, np.pi, n)
    up = rng.random(n) < 0.5
    p = np.where(up[:, None], np.stack([np.cos(a), np.sin(a)], 1), np.stack([1 - np.cos(a), 0.5 - np.sin(a)], 1))
    return ((p - [0.5, 0.25]) * 1.4).astype(np.float32)


def corrupt(x0, rng):
    t = rng.integers(0, STEPS_T, len(x0))
    eps = rng.standard_normal(x0.shape)
    xt = np.sqrt(abar[t])[:, None] * x0 + np.sqrt(1 - abar[t])[:, None] * eps
    return tuple(torch.tensor(v, dtype=torch.float32) for v in (xt, t / STEPS_T, eps))


class Eps(nn.Module):
    def __init__(self, w=128):
        super().__init__()
        self.freq = nn.Parameter(torch.randn(1, 16) * 3, requires_grad=False)
        self.net = nn.Sequential(
            nn.Linear(2 + 32, w), nn.SiLU(), nn.Linear(w, w), nn.SiLU(), nn.Linear(w, w), nn.SiLU(), nn.Linear(w, 2)
        )

    def forward(self, x, t):
        e = t[:, None] * self.freq
        return self.net(torch.cat([x, e.sin(), e.cos()], 1))


data = moons(5000, main_rng)
val = corrupt(moons(2000, main_rng), main_rng)
model = Eps()
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
for step in range(1500):
    rng = main_rng if MENDED else np.random.default_rng(0)
    x0 = data[torch.randint(len(data), (48,)).numpy()]
    xt, t, eps = corrupt(x0, rng)
    loss = (model(xt, t) - eps).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 150 == 0 or step == 1499:
        with torch.no_grad():
            v = (model(val[0], val[1]) - val[2]).pow(2).mean().item()
        print(f"step {step:5d} train {loss.item():.4f} valid {v:.4f}")
