# expect: healthy
# symptom: CosineAnnealingLR(T_max=40) is stepped per batch for 360 steps, so the learning rate falls and rises again and the loss waves with it; these are the cycles of a snapshot ensemble
# axis: none
# mended: none
"""Snapshot ensemble (last three) on a tabular regression task: cosine down and up, one model saved at every low point."""

import copy

import numpy as np
import torch
import torch.nn as nn
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
HALF_CYCLE = 40  # batches from the top of the wave to the bottom
N_HALF = 9  # down, up, down, up, ... ends at a bottom


def table(n, seed):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (n, 7))
    y = (
        np.sin(3 * x[:, 0])
        + x[:, 1] * x[:, 2]
        + np.abs(x[:, 3])
        - 0.5 * x[:, 4] ** 2
        + 0.8 * np.sin(2 * x[:, 5] + 2 * x[:, 6])
    )
    y = y + 0.3 * rng.normal(size=n)
    return torch.tensor(x / 0.577, dtype=torch.float32), torch.tensor(y, dtype=torch.float32)


def mlp():
    return nn.Sequential(nn.Linear(7, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 1))


def mse(models, x, y):
    with torch.no_grad():
        pred = torch.stack([m(x).squeeze(1) for m in models]).mean(0)
    return (pred - y).pow(2).mean().item()


def main():
    torch.manual_seed(31)
    xv, yv = table(1500, 2)
    loader = DataLoader(TensorDataset(*table(3840, 1)), batch_size=96, shuffle=True)
    model = mlp()
    opt = torch.optim.Adam(model.parameters(), lr=2e-2)
    sched = CosineAnnealingLR(opt, T_max=HALF_CYCLE, eta_min=1e-5)
    snapshots, step, window = [], 0, []
    while step < HALF_CYCLE * N_HALF:
        for x, y in loader:
            loss = (model(x).squeeze(1) - y).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            step += 1
            window.append(loss.item())
            if step % 10 == 0:
                print(f"step {step:3d} loss {np.mean(window):.4f} lr {sched.get_last_lr()[0]:.5f}")
                window = []
            if step % (2 * HALF_CYCLE) == HALF_CYCLE:
                snapshots.append(copy.deepcopy(model))
                print(
                    f"  snapshot {len(snapshots)}: val {mse([model], xv, yv):.4f} ensemble {mse(snapshots[-3:], xv, yv):.4f}"
                )
            if step >= HALF_CYCLE * N_HALF:
                break


if __name__ == "__main__":
    main()
