# expect: healthy
# symptom: the loss climbs again to two or three times its value after steps 120, 240 and 360, just when it had become small, and the learning rate jumps back to its maximum each time
# axis: none
# mended: none
"""Snapshot ensemble: cosine annealing with warm restarts (SGDR), one snapshot at the end of each cycle."""

import copy

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(1)

CLASSES, DIM, BATCH, CYCLE, CYCLES = 8, 24, 64, 120, 4


def make_table(n, gen, centres, mix):
    """Each class is made of four clusters; features are mixed linearly and by a tanh."""
    y = torch.randint(0, CLASSES, (n,), generator=gen)
    sub = torch.randint(0, 4, (n,), generator=gen)
    z = centres[y, sub] + 0.7 * torch.randn(n, DIM, generator=gen)
    return torch.tanh(z @ mix) + 0.1 * torch.randn(n, DIM, generator=gen), y


class Residual(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.bn = nn.BatchNorm1d(dim)
        self.fc1, self.fc2 = nn.Linear(dim, dim), nn.Linear(dim, dim)

    def forward(self, x):
        return x + self.fc2(F.relu(self.fc1(self.bn(x))))


class TabNet(nn.Module):
    def __init__(self, hidden=96):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(DIM, hidden),
            Residual(hidden),
            Residual(hidden),
            nn.BatchNorm1d(hidden),
            nn.ReLU(),
            nn.Linear(hidden, CLASSES),
        )

    def forward(self, x):
        return self.net(x)


@torch.no_grad()
def accuracy(models, x, y):
    probs = 0
    for m in models:
        m.eval()
        probs = probs + m(x).softmax(-1)
    return (probs.argmax(1) == y).float().mean().item()


def main():
    gen = torch.Generator().manual_seed(5)
    centres = torch.randn(CLASSES, 4, DIM, generator=gen)
    mix = torch.randn(DIM, DIM, generator=gen) / DIM**0.5
    train_x, train_y = make_table(6000, gen, centres, mix)
    test_x, test_y = make_table(1000, gen, centres, mix)

    model = TabNet()
    opt = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9, weight_decay=5e-4, nesterov=True)
    sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, T_0=CYCLE, eta_min=1e-4)
    snapshots = []
    for step in range(CYCLE * CYCLES):
        model.train()
        rows = torch.randint(0, len(train_y), (BATCH,))
        loss = F.cross_entropy(model(train_x[rows]), train_y[rows])
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step % 15 == 0:
            print(f"step {step:4d} loss {loss.item():.4f} lr {sched.get_last_lr()[0]:.4f}")
        if (step + 1) % CYCLE == 0:
            snapshots.append(copy.deepcopy(model))
            print(
                f"snapshot {len(snapshots)}: single {accuracy([model], test_x, test_y):.4f} "
                f"ensemble {accuracy(snapshots, test_x, test_y):.4f}"
            )


if __name__ == "__main__":
    main()
