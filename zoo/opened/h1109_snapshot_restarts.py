# expect: healthy
# symptom: training loss does not fall evenly: every 110 steps, after the learning rate jumps back up, it rises or stalls and then falls again (cosine warm restarts, one snapshot per cycle)
# axis: none
# mended: none
import copy

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
CLASSES, LENGTH, CYCLE, CYCLES = 8, 64, 110, 5


def make_gestures(n, seed):
    """Wrist accelerometer gestures: class-specific chirp pairs with jitter in time."""
    proto = np.random.default_rng(17)
    f = proto.uniform(0.05, 0.45, (CLASSES, 3))
    ph = proto.uniform(0, 6.28, (CLASSES, 3))
    rng = np.random.default_rng(seed)
    y = rng.integers(0, CLASSES, n)
    t = np.arange(LENGTH)[None, None] + rng.uniform(-4, 4, (n, 1, 1))
    env = np.exp(-(((t - 32) / rng.uniform(12, 22, (n, 1, 1))) ** 2))
    x = env * np.sin(f[y][:, :, None] * t * rng.uniform(0.93, 1.07, (n, 1, 1)) + ph[y][:, :, None])
    x = x + rng.normal(0, 0.8, x.shape)
    return torch.tensor(x, dtype=torch.float32), torch.tensor(y)


class GestureNet(nn.Module):
    def __init__(self, c=24):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv1d(3, c, 7, padding=3),
            nn.BatchNorm1d(c),
            nn.ReLU(),
            nn.MaxPool1d(2),
            nn.Conv1d(c, 2 * c, 5, padding=2),
            nn.BatchNorm1d(2 * c),
            nn.ReLU(),
            nn.MaxPool1d(2),
            nn.Conv1d(2 * c, 2 * c, 3, padding=1),
            nn.BatchNorm1d(2 * c),
            nn.ReLU(),
        )
        self.head = nn.Linear(2 * c, CLASSES)

    def forward(self, x):
        return self.head(self.conv(x).amax(-1))


@torch.no_grad()
def ensemble_accuracy(models, x, y):
    prob = sum(m.eval()(x).softmax(-1) for m in models)
    return (prob.argmax(1) == y).float().mean().item()


def main():
    torch.manual_seed(0)
    x, y = make_gestures(3000, 1)
    vx, vy = make_gestures(1000, 2)
    model = GestureNet()
    opt = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9, weight_decay=1e-4)
    sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, T_0=CYCLE, eta_min=1e-4)
    snapshots = []
    for step in range(CYCLE * CYCLES):
        i = torch.randint(0, len(x), (64,))
        loss = F.cross_entropy(model(x[i]), y[i])
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step % 22 == 0:
            print(f"step {step:4d} loss {loss.item():.4f} lr {opt.param_groups[0]['lr']:.4f}", flush=True)
        if (step + 1) % CYCLE == 0:
            snapshots.append(copy.deepcopy(model))
            print(
                f"snapshot {len(snapshots)}: single {ensemble_accuracy(snapshots[-1:], vx, vy):.3f} "
                f"ensemble {ensemble_accuracy(snapshots, vx, vy):.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
