# expect: healthy
# symptom: the learning rate jumps up a hundredfold twice and the loss bumps, resembling a resume fault
# axis: schedule
"""Tile classifier: SGD with warm restarts, gradient accumulation and a snapshot ensemble."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
CLASSES, MICRO, ACCUM, STEPS, PERIOD = 8, 24, 2, 300, 100


def tiles(n, gen, protos):
    y = torch.randint(CLASSES, (n,), generator=gen)
    x = protos[y].clone()
    flip = torch.rand(n, generator=gen) < 0.5
    x[flip] = x[flip].flip(-1)
    shift = torch.randint(-2, 3, (n,), generator=gen)
    x = torch.stack([torch.roll(t, int(s), -1) for t, s in zip(x, shift)])
    return x + 1.1 * torch.randn(x.shape, generator=gen), y


class TileNet(nn.Module):
    def __init__(self, w=16):
        super().__init__()
        self.f = nn.Sequential(
            nn.Conv2d(2, w, 3, padding=1, bias=False),
            nn.BatchNorm2d(w),
            nn.ReLU(),
            nn.Conv2d(w, 2 * w, 3, padding=1, stride=2, bias=False),
            nn.BatchNorm2d(2 * w),
            nn.ReLU(),
            nn.Conv2d(2 * w, 2 * w, 3, padding=1, bias=False),
            nn.BatchNorm2d(2 * w),
            nn.ReLU(),
        )
        self.head = nn.Linear(2 * w, CLASSES)

    def forward(self, x):
        return self.head(self.f(x).mean((2, 3)))


def endless(loader):
    while True:
        yield from loader


def predict(model, x):
    model.eval()
    with torch.no_grad():
        p = model(x).softmax(1)
    model.train()
    return p


def main():
    torch.manual_seed(41)
    gen = torch.Generator().manual_seed(41)
    protos = F.interpolate(
        torch.randn(CLASSES, 2, 4, 4, generator=gen), size=(12, 12), mode="bilinear", align_corners=False
    )
    train = TensorDataset(*tiles(3000, gen, protos))
    test_x, test_y = tiles(800, gen, protos)
    batches = endless(DataLoader(train, batch_size=MICRO, shuffle=True, drop_last=True))
    model = TileNet()
    opt = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9, nesterov=True, weight_decay=5e-4)
    sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, T_0=PERIOD, eta_min=0.002)
    ensemble = torch.zeros(len(test_x), CLASSES)
    for step in range(1, STEPS + 1):
        opt.zero_grad()
        total = 0.0
        for _ in range(ACCUM):
            x, y = next(batches)
            loss = F.cross_entropy(model(x), y) / ACCUM
            loss.backward()
            total += loss.item()
        lr = opt.param_groups[0]["lr"]
        opt.step()
        sched.step()
        if step % 20 == 0 or step % PERIOD == 5:
            print(f"step {step:4d} lr {lr:.4f} loss {total:.4f}")
        if step % PERIOD == 0:
            p = predict(model, test_x)
            ensemble += p
            acc = (p.argmax(1) == test_y).float().mean().item()
            both = (ensemble.argmax(1) == test_y).float().mean().item()
            print(f"snapshot {step // PERIOD}: test accuracy {acc:.3f} ensemble {both:.3f}")


if __name__ == "__main__":
    main()
