# expect: sick
# symptom: after the restart of the job (second half) the loss jumps by orders of magnitude and comes back only slowly; the final error is about twice that of an uninterrupted run
# axis: harness
# cause: the normaliser's mean and std are plain attributes, not registered buffers, so they are not in the state_dict / checkpoint; after the resume they are back at 0 and 1 and inputs are no longer normalised
# says: buffer|normali[sz](er|ation|ing)?.{0,120}(checkpoint|resum|restor|saved?|load|state_dict|lost|reset|re-?fit|default|missing|persist)|(checkpoint|resum|restor|saved?\b|load|state_dict|lost|reset|missing).{0,120}(normali[sz]|\bmean\b.{0,20}\bstd\b|statistics|\bstats\b|scaler)
# onset_step: 300
# fix: register mean and std as buffers (or save them in the checkpoint)
# mended: the statistics are registered as buffers
import os
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
NX, BATCH, TOTAL, JOB_STEPS = 48, 24, 600, 300


def simulate(n, seed, steps=40):
    """1-d heat conduction along a rod with a variable conductivity, temperatures in kelvin"""
    rng = np.random.default_rng(seed)
    x = np.linspace(0, 1, NX)
    u = np.full((n, NX), 300.0)
    for _ in range(4):
        amp, c, w = rng.normal(0, 40, (n, 1)), rng.uniform(0, 1, (n, 1)), rng.uniform(0.04, 0.2, (n, 1))
        u += amp * np.exp(-(((x - c) / w) ** 2))
    k = 0.08 + 0.35 * (1 + np.sin(2 * np.pi * (rng.uniform(1, 2, (n, 1)) * x + rng.uniform(0, 1, (n, 1))))) / 2
    u0 = u.copy()
    for _ in range(steps):
        flux = 0.5 * (k[:, 1:] + k[:, :-1]) * (u[:, 1:] - u[:, :-1])
        u[:, 1:-1] += flux[:, 1:] - flux[:, :-1]
    f = lambda a: torch.tensor(a, dtype=torch.float32)
    return torch.stack([f(u0), f(100 * k)], 1), f(u)


class Standardizer(nn.Module):
    def __init__(self, channels):
        super().__init__()
        for name, v in (("mean", torch.zeros(channels, 1)), ("std", torch.ones(channels, 1))):
            self.register_buffer(name, v) if MENDED else setattr(self, name, v)

    def fit(self, x):
        self.mean.copy_(x.mean((0, 2))[:, None])
        self.std.copy_(x.std((0, 2))[:, None])

    def forward(self, x):
        return (x - self.mean) / self.std


class SpectralBlock(nn.Module):
    def __init__(self, width, modes=12):
        super().__init__()
        self.modes = modes
        self.w = nn.Parameter(torch.randn(modes, width, width, 2) / width)
        self.skip = nn.Conv1d(width, width, 1)

    def forward(self, h):
        f = torch.fft.rfft(h)[..., : self.modes]
        f = torch.einsum("bcm,mco->bom", f, torch.view_as_complex(self.w))
        return h + F.gelu(torch.fft.irfft(f, n=h.shape[-1]) + self.skip(h))


class Surrogate(nn.Module):
    def __init__(self, width=24, depth=2):
        super().__init__()
        self.norm = Standardizer(2)
        self.inp = nn.Conv1d(2, width, 3, padding=1)
        self.blocks = nn.Sequential(*[SpectralBlock(width) for _ in range(depth)])
        self.out = nn.Sequential(nn.Conv1d(width, 64, 1), nn.GELU(), nn.Conv1d(64, 1, 1))

    def forward(self, x):
        return self.out(self.blocks(self.inp(self.norm(x)))).squeeze(1)


def run_job(path, data, val):
    """one cluster job: continues from the last checkpoint when there is one"""
    x, y = data
    model = Surrogate()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, TOTAL, 1e-5)
    start = 0
    if os.path.exists(path):
        ck = torch.load(path)
        model.load_state_dict(ck["model"])
        opt.load_state_dict(ck["opt"])
        sched.load_state_dict(ck["sched"])
        torch.set_rng_state(ck["rng"])
        start = ck["step"]
        print(f"continuing at step {start}")
    else:
        model.norm.fit(x)
    t0 = time.time()
    for step in range(start, start + JOB_STEPS):
        i = torch.randint(0, len(x), (BATCH,))
        target = (y[i] - x[i, 0]) / 10.0
        loss = F.mse_loss(model(x[i]), target)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        if step % 20 == 0:
            print(f"step {step:4d} loss {loss.item():.4f} lr {sched.get_last_lr()[0]:.2e}")
    with torch.no_grad():
        err = (model(val[0]) * 10 + val[0][:, 0] - val[1]).abs().mean().item()
    print(f"== step {step} val error {err:.3f} K ({time.time() - t0:.1f}s)")
    torch.save(
        {
            "model": model.state_dict(),
            "opt": opt.state_dict(),
            "sched": sched.state_dict(),
            "rng": torch.get_rng_state(),
            "step": step + 1,
        },
        path,
    )


if __name__ == "__main__":
    torch.manual_seed(2)
    train, val = simulate(3000, 0), simulate(200, 1)
    with tempfile.TemporaryDirectory() as d:
        for _ in range(TOTAL // JOB_STEPS):
            run_job(os.path.join(d, "last.pt"), train, val)
