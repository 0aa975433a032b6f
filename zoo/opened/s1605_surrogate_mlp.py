# expect: sick
# symptom: the loss jumps up by several times at the start of every epoch, then falls again; the fit never gets as fine as it should
# axis: optimizer
# cause: the Adam optimizer is created anew inside the per-epoch function, so its moment estimates are lost at every epoch start and the first steps after it are full-size sign steps
# says: (optimi[sz]er|adam\w*|moment(s|um)?|state).{0,100}(re-?creat|re-?construct|re-?built|re-?build|re-?init|re-?instantiat|anew|new (one|instance|optimi)|fresh|reset|lost|discard|thrown|forg|every epoch|each epoch|per epoch|inside)|(new|fresh).{0,20}(optimi[sz]er|adam)
# onset_step: 30
# fix: create the optimizer once before the epoch loop
# mended: the optimizer is created once and passed on
import os
import time
import torch
import torch.nn as nn

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(2)

N_IN, N_OUT, BATCH, EPOCHS = 6, 3, 256, 28


def simulate(n, g):
    """Stand-in for a solver: six design parameters in, lift, drag and moment out."""
    x = 2 * torch.rand(n, N_IN, generator=g) - 1
    lift = torch.sin(2 * x[:, 0]) * (1 + 0.3 * x[:, 1]) + 0.2 * x[:, 2] ** 2
    drag = 0.5 * x[:, 0] ** 2 + 0.3 * torch.tanh(3 * x[:, 3]) * x[:, 4]
    moment = torch.cos(x[:, 0] + x[:, 5]) - 0.4 * x[:, 1] * x[:, 2]
    y = torch.stack([lift, drag, moment], 1)
    return x, (y - y.mean(0)) / y.std(0)


class Residual(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.f = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))

    def forward(self, x):
        return x + self.f(x)


class Surrogate(nn.Module):
    def __init__(self, d=128, depth=3):
        super().__init__()
        self.inp = nn.Linear(N_IN, d)
        self.body = nn.Sequential(*[Residual(d) for _ in range(depth)])
        self.out = nn.Linear(d, N_OUT)

    def forward(self, x):
        return self.out(self.body(self.inp(x)))


def configure(model):
    return torch.optim.Adam(model.parameters(), lr=7e-4, betas=(0.9, 0.999))


def train_epoch(model, x, y, g, step, opt=None):
    opt = opt or configure(model)
    order = torch.randperm(len(x), generator=g)[: 30 * BATCH]
    model.train()
    for i in range(0, len(order), BATCH):
        part = order[i : i + BATCH]
        loss = (model(x[part]) - y[part]).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 4 == 0:
            print(f"step {step:4d} loss {loss.item():.6f}", flush=True)
        step += 1
    return step


@torch.no_grad()
def validate(model, x, y):
    model.eval()
    return (model(x) - y).pow(2).mean().item()


def main():
    g = torch.Generator().manual_seed(4)
    x, y = simulate(240 * BATCH, g)
    vx, vy = simulate(2000, g)
    model, step, t0 = Surrogate(), 0, time.time()
    opt = configure(model) if MENDED else None
    for epoch in range(EPOCHS):
        step = train_epoch(model, x, y, g, step, opt)
        print(f"epoch {epoch} val mse {validate(model, vx, vy):.6f} ({time.time() - t0:.1f}s)", flush=True)


if __name__ == "__main__":
    main()
