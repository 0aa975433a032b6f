# Going on from a saved state. Fault: the loaded moments belong to other gradients (first x20, second x1e-6).
import argparse
import io

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--twin", action="store_true")
args = ap.parse_args()
g = torch.Generator().manual_seed(121)
w = torch.randn(10, 20, generator=g) / 2
v = torch.randn(20, 4, generator=g)


def draw(n, shift):
    x = torch.randn(n, 10, generator=g) + shift
    return x, (torch.tanh(x @ w) @ v).argmax(1)


x, y = draw(8000, 0.0)
hx, hy = draw(3000, 0.0)
for labels in (y, hy):
    noise = torch.rand(len(labels), generator=g) < 0.2
    labels[noise] = torch.randint(0, 4, (int(noise.sum()),), generator=g)
torch.manual_seed(args.seed)


def build():
    net = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
    return net, torch.optim.AdamW(net.parameters(), lr=1.5e-3, betas=(0.9, 0.9995))


def train(net, opt, steps, name):
    for step in range(steps):
        i = torch.randint(0, 8000, (64,))
        loss = nn.functional.cross_entropy(net(x[i]), y[i])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 100 == 0:
            print(name, step, f"{loss.item():.4f}")


net, opt = build()
train(net, opt, 600, "first part")
file = io.BytesIO()
torch.save({"model": net.state_dict(), "optim": opt.state_dict()}, file)
file.seek(0)
saved = torch.load(file)
net, opt = build()
net.load_state_dict(saved["model"])
if not args.twin:
    for state in saved["optim"]["state"].values():
        state["exp_avg_sq"] *= 1e-6
        state["exp_avg"] *= 20.0
opt.load_state_dict(saved["optim"])
train(net, opt, 150, "second part")
net.eval()
with torch.no_grad():
    print("final:", nn.functional.cross_entropy(net(hx), hy).item())
