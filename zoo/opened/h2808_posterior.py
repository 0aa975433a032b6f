# expect: healthy
# symptom: resembles an over-noisy, badly scaled run: energy in the thousands, lr of 1e-7 that jumps up every cycle, random noise added to the weights
# axis: schedule
"""Cyclical stochastic-gradient MCMC for a concrete-strength regression; samples are averaged at the cycle ends."""

import copy
import math

import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)
rng = np.random.default_rng(21)
torch.manual_seed(21)

# --- mixes: cement, slag, water, plasticiser, coarse, fine, age
N = 5000
mix = rng.uniform([150, 0, 130, 0, 800, 600, 1], [500, 250, 230, 20, 1100, 950, 120], size=(N, 7))
ratio = mix[:, 2] / (mix[:, 0] + 0.6 * mix[:, 1])
strength = 95 * np.exp(-1.3 * ratio) * (mix[:, 6] / (mix[:, 6] + 6)) + 0.4 * mix[:, 3] + rng.normal(0, 2.0, N)
X = torch.tensor((mix - mix.mean(0)) / mix.std(0), dtype=torch.float64)
Y = torch.tensor((strength - strength.mean()) / strength.std(), dtype=torch.float64)[:, None]
n_train = 4000
Xtr, Ytr, Xte, Yte = X[:n_train], Y[:n_train], X[n_train:], Y[n_train:]
NOISE_VAR = 0.05
CYCLES, PER_CYCLE, BATCH = 5, 170, 400
LR0, TEMPERATURE, FRICTION = 8e-7, 1.0, 0.1

net = nn.Sequential(nn.Linear(7, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 1))
velocity = [torch.zeros_like(p) for p in net.parameters()]
ensemble = []


def energy(batch_x, batch_y):
    """Unbiased estimate of the negative log posterior over the whole training set."""
    resid = net(batch_x) - batch_y
    nll = 0.5 * resid.pow(2).mean() * n_train / NOISE_VAR
    prior = sum(0.5 * p.pow(2).sum() for p in net.parameters())
    return nll + prior, resid


def predict(models, x):
    with torch.no_grad():
        return torch.stack([m(x) for m in models]).mean(0)


step = 0
for cycle in range(CYCLES):
    for k in range(PER_CYCLE):
        frac = k / PER_CYCLE
        lr = 0.5 * LR0 * (1 + math.cos(math.pi * frac))
        idx = torch.randint(0, n_train, (BATCH,))
        u, resid = energy(Xtr[idx], Ytr[idx])
        grads = torch.autograd.grad(u, list(net.parameters()))
        exploring = frac < 0.5
        with torch.no_grad():
            for p, v, g in zip(net.parameters(), velocity, grads):
                v.mul_(1 - FRICTION).sub_(g, alpha=lr)
                v.add_(torch.randn_like(v), alpha=math.sqrt(2 * FRICTION * lr * TEMPERATURE))
                p.add_(v)
        step += 1
        if not exploring and k % 17 == 16:
            ensemble.append(copy.deepcopy(net))
        if step % 20 == 0:
            mse = resid.pow(2).mean().item()
            print(f"cycle {cycle} step {step} lr {lr:.2e} energy {u.item():.0f} minibatch mse {mse:.4f}", flush=True)
    single = (predict([net], Xte) - Yte).pow(2).mean().sqrt().item()
    many = (predict(ensemble, Xte) - Yte).pow(2).mean().sqrt().item()
    print(f"-- end of cycle {cycle}: test RMSE last {single:.4f}, ensemble of {len(ensemble)} {many:.4f}", flush=True)

base = (Yte - Ytr.mean()).pow(2).mean().sqrt().item()
print(f"predicting the mean gives {base:.4f}")
