# expect: healthy
# symptom: the training loss jumps up again and again in a saw-tooth and noise is added to the weights, which resembles an unstable schedule
# axis: schedule
"""Cyclical stochastic-gradient Langevin sampling for crop-yield regression with a posterior ensemble."""

import copy
import math

import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)

CYCLES, CYCLE_LEN = 5, 180
PEAK_LR = 0.06
EXPLORE = 0.75  # the share of a cycle spent without injected noise
TEMPERATURE = 3e-7
PRIOR = 1e-4
BATCH = 512


def make_fields(n, seed):
    rng = np.random.default_rng(seed)
    rain = rng.gamma(6, 60, n)
    heat = rng.normal(18, 4, n)
    nitrogen = rng.uniform(0, 200, n)
    ph = rng.normal(6.4, 0.6, n)
    soil = rng.integers(0, 4, n)
    yield_t = (
        3.0
        + 2.5 * np.exp(-(((rain - 380) / 160) ** 2))
        + 1.8 * (1 - np.exp(-nitrogen / 70)) * (1 + 0.3 * (soil == 2))
        - 0.05 * (heat - 19) ** 2
        - 1.2 * (ph - 6.5) ** 2
        + np.array([0.0, 0.6, -0.4, 1.0])[soil]
        + rng.normal(0, 0.25, n)
    )
    numeric = np.stack([(rain - 360) / 150, (heat - 18) / 4, (nitrogen - 100) / 58, (ph - 6.4) / 0.6], 1)
    x = np.concatenate([numeric, np.eye(4)[soil]], 1).astype(np.float32)
    y = ((yield_t - 4.5) / 2.0).astype(np.float32)
    return torch.from_numpy(x), torch.from_numpy(y)


def build():
    return nn.Sequential(
        nn.Linear(8, 256),
        nn.Tanh(),
        nn.Linear(256, 256),
        nn.Tanh(),
        nn.Linear(256, 1),
        nn.Flatten(0),
    )


def cyclic_lr(step):
    phase = (step % CYCLE_LEN) / CYCLE_LEN
    return 0.5 * PEAK_LR * (math.cos(math.pi * phase) + 1) + 1e-4, phase


@torch.no_grad()
def langevin_step(model, lr, noisy, momentum, alpha=0.1):
    for p, buf in zip(model.parameters(), momentum):
        buf.mul_(1 - alpha).add_(p.grad + PRIOR * p, alpha=-lr)
        if noisy:
            buf.add_(torch.randn_like(p), alpha=math.sqrt(2 * alpha * TEMPERATURE * lr))
        p.add_(buf)


def rmse(pred, y):
    return (pred - y).square().mean().sqrt().item()


def main():
    torch.manual_seed(9)
    x, y = make_fields(4000, seed=31)
    tx, ty = make_fields(800, seed=32)
    model = build()
    momentum = [torch.zeros_like(p) for p in model.parameters()]
    ensemble = []
    order = torch.randperm(len(x))
    cursor = 0

    for step in range(CYCLES * CYCLE_LEN):
        if cursor + BATCH > len(x):
            order, cursor = torch.randperm(len(x)), 0
        rows = order[cursor : cursor + BATCH]
        cursor += BATCH

        lr, phase = cyclic_lr(step)
        loss = nn.functional.mse_loss(model(x[rows]), y[rows])
        model.zero_grad()
        loss.backward()
        langevin_step(model, lr, phase > EXPLORE, momentum)

        if (step + 1) % 20 == 0:
            print(f"iter {step + 1:4d}  lr {lr:.4f}  mse {loss.item():.4f}")
        if phase > 0.9 and step % 5 == 0:
            ensemble.append(copy.deepcopy(model))
        if (step + 1) % CYCLE_LEN == 0:
            with torch.no_grad():
                single = rmse(model(tx), ty)
                mean = rmse(torch.stack([m(tx) for m in ensemble]).mean(0), ty)
            print(
                f"-- cycle {(step + 1) // CYCLE_LEN}: test rmse of this sample {single:.4f}, "
                f"of the ensemble ({len(ensemble)} members) {mean:.4f}"
            )


if __name__ == "__main__":
    main()
