# expect: healthy
# symptom: the training loss jumps up at steps 60, 180 and 420 after each stretch of steady fall
# axis: none
# mended: none
import os
import time
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(31)

N_CLASS, BATCH, STEPS = 16, 48, 420


def gratings(n, g):
    """Oriented gratings under noise and random phase, sixteen orientations."""
    y = torch.randint(0, N_CLASS, (n,), generator=g)
    u = torch.linspace(-1, 1, 20)
    yy, xx = torch.meshgrid(u, u, indexing="ij")
    ang = (y.float() + 0.5 * (torch.rand(n, generator=g) - 0.5)) * torch.pi / N_CLASS
    freq = 6 + 5 * torch.rand(n, generator=g)
    phase = 6.28 * torch.rand(n, generator=g)
    proj = xx * ang.cos()[:, None, None] + yy * ang.sin()[:, None, None]
    x = torch.sin(freq[:, None, None] * proj + phase[:, None, None])
    return (x + 2.5 * torch.randn(x.shape, generator=g))[:, None], y


class Net(nn.Module):
    def __init__(self, w=20):
        super().__init__()

        def conv(a, b):
            return nn.Sequential(nn.Conv2d(a, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU())

        self.body = nn.Sequential(
            conv(1, w), conv(w, w), nn.MaxPool2d(2), conv(w, 2 * w), nn.MaxPool2d(2), conv(2 * w, 2 * w)
        )
        self.head = nn.Linear(2 * w, N_CLASS)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3)))


@torch.no_grad()
def accuracy(model, x, y):
    model.eval()
    hit = (model(x).argmax(1) == y).float().mean().item()
    model.train()
    return hit


def main():
    g = torch.Generator().manual_seed(1)
    x, y = gratings(12000, g)
    vx, vy = gratings(600, g)
    model = Net()
    opt = torch.optim.SGD(model.parameters(), lr=0.6, momentum=0.9, weight_decay=5e-4, nesterov=True)
    sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, T_0=60, T_mult=2, eta_min=1e-4)
    run, t0 = 0.0, time.time()
    for step in range(STEPS):
        i = torch.randint(0, len(x), (BATCH,), generator=g)
        loss = F.cross_entropy(model(x[i]), y[i])
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        run += loss.item()
        if (step + 1) % 10 == 0:
            print(f"step {step + 1:4d} lr {sched.get_last_lr()[0]:.4f} loss {run / 10:.4f}", flush=True)
            run = 0.0
        if step + 1 in (60, 180, 420):
            print(f"  snapshot: val accuracy {accuracy(model, vx, vy):.3f} ({time.time() - t0:.1f}s)", flush=True)


if __name__ == "__main__":
    main()
