# expect: sick
# symptom: the ELBO stalls far above what the model can reach, posterior noise stays near the prior's and reconstructions stay poor; nothing explodes
# axis: model
# cause: the encoder with its latent sampling is wrapped in activation checkpointing with preserve_rng_state=False, so the recomputation in backward draws other noise than the forward pass and the gradients (above all of log sigma) belong to another sample
# says: (checkpoint|recomput|rng|random state|preserve_rng).*(noise|random|rng|sampl|eps|differ|draw|state|seed)|(noise|sampl|eps|draw).*(recomput|checkpoint|preserve_rng)
# onset_step: 1
# fix: preserve_rng_state=True
# mended: yes
"""VAE over gait cycles from a wearable (3 axes x 40 samples)."""

import os
import time

import numpy as np
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.set_num_threads(1)
torch.manual_seed(42)
MENDED = os.environ.get("MENDED") == "1"

LATENT = 8
OBS_STD = 0.15
EPOCHS, BATCH = 12, 100


def gait_cycles(n, seed):
    rng = np.random.RandomState(seed)
    t = np.linspace(0, 2 * np.pi, 40, endpoint=False)
    speed = rng.uniform(0.6, 1.6, (n, 1))
    limp = rng.uniform(-1, 1, (n, 1))
    phase = rng.normal(0, 0.35, (n, 1))
    swing = rng.uniform(0.4, 1.2, (n, 1))
    tilt = rng.normal(0, 0.4, (n, 1))
    x = speed * np.sin(t + phase) + 0.5 * limp * np.sin(2 * t + phase)
    y = swing * np.cos(t + 0.6 * phase) + 0.3 * speed * np.cos(3 * t)
    z = tilt + 0.7 * np.abs(np.sin(t + phase)) * speed + 0.2 * limp * np.cos(t)
    cyc = np.stack([x, y, z], 1) + rng.normal(0, 0.1, (n, 3, 40))
    return torch.tensor(cyc, dtype=torch.float32)


class Posterior(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv1d(3, 24, 5, padding=2, padding_mode="circular"),
            nn.SiLU(),
            nn.Conv1d(24, 48, 5, stride=2, padding=2),
            nn.SiLU(),
            nn.Conv1d(48, 64, 5, stride=2, padding=2),
            nn.SiLU(),
        )
        self.to_stats = nn.Linear(640, 2 * LATENT)

    def forward(self, x):
        mu, log_sigma = self.to_stats(self.conv(x).flatten(1)).chunk(2, dim=1)
        z = mu + log_sigma.exp() * torch.randn_like(mu)
        return z, mu, log_sigma


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.lift = nn.Sequential(nn.Linear(LATENT, 128), nn.SiLU(), nn.Linear(128, 64 * 10), nn.SiLU())
        self.up = nn.Sequential(
            nn.ConvTranspose1d(64, 32, 4, stride=2, padding=1),
            nn.SiLU(),
            nn.ConvTranspose1d(32, 24, 4, stride=2, padding=1),
            nn.SiLU(),
            nn.Conv1d(24, 3, 5, padding=2),
        )

    def forward(self, z):
        return self.up(self.lift(z).view(-1, 64, 10))


class GaitVAE(nn.Module):
    def __init__(self, save_memory=True):
        super().__init__()
        self.posterior, self.decoder = Posterior(), Decoder()
        self.save_memory = save_memory

    def forward(self, x):
        if self.save_memory and self.training:
            z, mu, ls = checkpoint(self.posterior, x, use_reentrant=False, preserve_rng_state=MENDED)
        else:
            z, mu, ls = self.posterior(x)
        rec = self.decoder(z)
        nll = (0.5 * ((x - rec) / OBS_STD) ** 2).sum((1, 2)).mean()
        kl = (0.5 * (mu**2 + (2 * ls).exp() - 1) - ls).sum(1).mean()
        return nll, kl, ls


def evaluate(model, data):
    model.eval()
    with torch.no_grad():
        nll, kl, ls = model(data)
    model.train()
    return nll.item(), kl.item(), ls.exp().mean().item()


def run():
    train, valid = gait_cycles(4000, 0), gait_cycles(500, 1)
    model = GaitVAE()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    total = EPOCHS * len(train) // BATCH
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 40) * (1 - 0.9 * s / total))
    t0 = time.time()
    step = 0
    for epoch in range(EPOCHS):
        for idx in torch.randperm(len(train)).split(BATCH):
            nll, kl, _ = model(train[idx])
            loss = nll + kl
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 200.0)
            opt.step()
            sched.step()
            step += 1
            if step % 20 == 0:
                print(f"step {step} -elbo {loss.item():.1f} (rec {nll.item():.1f}, kl {kl.item():.1f})", flush=True)
        v = evaluate(model, valid)
        print(
            f"epoch {epoch} valid rec {v[0]:.1f} kl {v[1]:.1f} mean sigma {v[2]:.3f} [{time.time() - t0:.0f}s]",
            flush=True,
        )


run()
