# expect: sick
# symptom: the likelihood improves nicely for a few hundred steps, then the loss turns inf and every weight is NaN from the next step on
# axis: loss
# cause: The von Mises normaliser is computed as log(i0(kappa)), and the Bessel function I0 overflows float32 to inf once the predicted concentration kappa passes about 91, giving an infinite loss and NaN gradients; the exponentially scaled i0e(kappa) plus kappa is needed.
# says: (bessel|\bi0e?\b|i_0|von[ -]?mises|kappa|concentration).*(overflow|\binf|exceed|too large|float32|unscaled|exponential|i0e|not (numerically )?stable|unstable)|(overflow|\binf|exponential|unscaled).*(bessel|\bi0e?\b|i_0|von[ -]?mises|kappa|concentration)
# onset_step: 169
# fix: use torch.special.i0e(kappa).log() + kappa for the log normaliser
# mended: yes
"""Heading of a small rover from the phases of a four-element antenna array.

The network returns a direction and its concentration, fitted by maximum
likelihood under a von Mises distribution (the noise differs with the SNR).
"""

import math
import os

import numpy as np
import torch
from torch import nn

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(11)
rng = np.random.default_rng(11)

N_TRAIN, N_VAL, STEPS, BATCH = 24000, 3000, 900, 256
ELEMENTS = np.array([[0.0, 0.0], [0.5, 0.0], [0.0, 0.5], [0.5, 0.5]])


def simulate(n):
    theta = rng.uniform(-math.pi, math.pi, n)
    snr_db = rng.uniform(2.0, 30.0, n)
    unit = np.stack([np.cos(theta), np.sin(theta)], 1)
    phase = 2 * math.pi * 0.9 * unit @ ELEMENTS.T
    sigma = 10 ** (-snr_db / 20)
    phase = phase + sigma[:, None] * rng.normal(size=phase.shape)
    gain = 1 + 0.1 * rng.normal(size=phase.shape)
    x = np.concatenate([gain * np.cos(phase), gain * np.sin(phase), snr_db[:, None] / 15 - 1], 1)
    return torch.tensor(x, dtype=torch.float32), torch.tensor(theta, dtype=torch.float32)


class HeadingNet(nn.Module):
    def __init__(self, d_in=9, width=192):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Linear(d_in, width),
            nn.SiLU(),
            nn.Linear(width, width),
            nn.SiLU(),
            nn.Linear(width, width),
            nn.SiLU(),
        )
        self.direction = nn.Linear(width, 2)
        self.spread = nn.Linear(width, 1)

    def forward(self, x):
        h = self.trunk(x)
        d = nn.functional.normalize(self.direction(h), dim=-1)
        kappa = nn.functional.softplus(self.spread(h)).squeeze(-1).square() + 1e-2
        return d, kappa


def log_norm(kappa):
    if MENDED:
        log_i0 = torch.special.i0e(kappa).log() + kappa
    else:
        log_i0 = torch.special.i0(kappa).log()
    return math.log(2 * math.pi) + log_i0


def nll(d, kappa, theta):
    cos = d[:, 0] * theta.cos() + d[:, 1] * theta.sin()
    return (log_norm(kappa) - kappa * cos).mean()


@torch.no_grad()
def evaluate(net, x, theta):
    net.eval()
    d, kappa = net(x)
    loss = nll(d, kappa, theta).item()
    pred = torch.atan2(d[:, 1], d[:, 0])
    err = torch.remainder(pred - theta + math.pi, 2 * math.pi) - math.pi
    net.train()
    return loss, math.degrees(err.abs().median().item()), kappa.max().item()


def main():
    x, theta = simulate(N_TRAIN)
    xv, tv = simulate(N_VAL)
    net = HeadingNet()
    opt = torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=1e-4)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=2e-3, total_steps=STEPS, pct_start=0.25)
    order = torch.randperm(N_TRAIN)
    cursor = 0
    for step in range(1, STEPS + 1):
        if cursor + BATCH > N_TRAIN:
            order, cursor = torch.randperm(N_TRAIN), 0
        idx = order[cursor : cursor + BATCH]
        cursor += BATCH
        d, kappa = net(x[idx])
        loss = nll(d, kappa, theta[idx])
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 5.0)
        opt.step()
        sched.step()
        if step % 25 == 0:
            print(f"step {step:4d}  nll {loss.item():8.4f}  kappa {kappa.mean().item():8.2f}", flush=True)
        if step % 150 == 0:
            l, deg, kmax = evaluate(net, xv, tv)
            print(f"  val nll {l:.4f}  median error {deg:.2f} deg  kappa max {kmax:.1f}", flush=True)


if __name__ == "__main__":
    main()
