# expect: healthy
# fault: the rate changes by factors of 3, several models one after another
# note: a sweep over three rates in one process; each trial has its own model and optimizer and all of them learn.
import itertools
import torch
import torch.nn as nn

torch.set_num_threads(1)
GRID = {"lr": [1e-3, 3e-3, 1e-2], "width": [32]}


def objective(lr, width, seed=0):
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(6, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))
    opt = torch.optim.Adam(net.parameters(), lr=lr)
    last = []
    for step in range(90):
        x = torch.rand(64, 6) * 2 - 1
        y = (10 * x[:, 0] * x[:, 1] + 5 * x[:, 2] ** 2 + 3 * x[:, 3])[:, None] / 5
        loss = nn.functional.mse_loss(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        last.append(loss.item())
    return sum(last[:5]) / 5, sum(last[-10:]) / 10


results = {}
for lr, width in itertools.product(GRID["lr"], GRID["width"]):
    first, end = objective(lr, width)
    results[lr, width] = end
    print(f"lr {lr} width {width}: {first:.4f} -> {end:.4f}")
print("best", min(results, key=results.get))
