# expect: healthy
# symptom: the loss rises sharply every 80 steps; resembles a learning rate that jumps or a diverging run
# axis: schedule
# cause: none: the rate is restarted on purpose (warm restarts), and each valley is lower than the one before
# says: (healthy|nothing (is )?wrong|no fault|no cause)
# onset_step: 0
# fix: none
# mended: the same
import copy

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(102)
CYCLE = 80


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1, self.c2 = nn.Conv2d(1, 16, 3, padding=1), nn.Conv2d(16, 24, 3, stride=2, padding=1)
        self.n1, self.n2 = nn.BatchNorm2d(16), nn.BatchNorm2d(24)
        self.fc = nn.Linear(24 * 16, 10)

    def forward(self, x):
        x = F.relu(self.n1(self.c1(x)))
        x = F.relu(self.n2(self.c2(x)))
        return self.fc(F.dropout(x.flatten(1), 0.3, self.training))


def augment(x, g):
    dx = int(torch.randint(-1, 2, (1,), generator=g))
    return torch.roll(x, dx, dims=-1) + 0.2 * torch.randn(x.shape, generator=g)


def main():
    data = load_digits()
    x = torch.tensor(data.data, dtype=torch.float32).view(-1, 1, 8, 8) / 16 - 0.3
    y = torch.tensor(data.target)
    g = torch.Generator().manual_seed(102)
    order = torch.randperm(len(x), generator=g)
    train, valid = order[:1400], order[1400:]
    net = Net()
    opt = torch.optim.SGD(net.parameters(), lr=0.3, momentum=0.9, weight_decay=1e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, T_0=CYCLE, eta_min=1e-4)
    snapshots = []
    for step in range(1, 5 * CYCLE + 1):
        b = train[torch.randint(0, len(train), (48,), generator=g)]
        loss = F.cross_entropy(net(augment(x[b], g)), y[b])
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step % 16 == 0:
            print(f"step {step} lr {sched.get_last_lr()[0]:.4f} loss {loss.item():.4f}")
        if step % CYCLE == 0:
            snapshots.append(copy.deepcopy(net).eval())
            with torch.no_grad():
                p = torch.stack([m(x[valid]).softmax(-1) for m in snapshots]).mean(0)
            acc = (p.argmax(-1) == y[valid]).float().mean().item()
            print(f"snapshot {len(snapshots)} ensemble accuracy {acc:.3f}")


if __name__ == "__main__":
    main()
