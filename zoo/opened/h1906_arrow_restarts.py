# expect: healthy
# symptom: the reported loss is in the tens, jumps at each warm restart, and images are mirrored although classes are left and right (resembles a label-breaking augmentation, a reduction fault or a bad schedule)
# axis: schedule
# cause: none
# says: none
# onset_step: none
# fix: none
# mended: no
import torch
import torch.nn as nn
import torch.nn.functional as F

NAMES = ["left", "right", "up", "down", "cross", "box"]
MIRROR = torch.tensor([1, 0, 2, 3, 4, 5])
SIZE = 14


def templates():
    t = torch.zeros(len(NAMES), SIZE, SIZE)
    t[0, 7, 2:12] = 1
    for d in range(4):
        t[0, 7 - d, 2 + d] = t[0, 7 + d, 2 + d] = 1
    t[1] = t[0].flip(-1)
    t[2] = t[0].T
    t[3] = t[2].flip(0)
    for d in range(3, 11):
        t[4, d, d] = t[4, d, 13 - d] = 1
    t[5, 3:11, 3:11] = 1
    t[5, 4:10, 4:10] = 0
    return t


def make_split(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(len(NAMES), (n,), generator=g)
    gain = 0.7 + torch.rand(n, 1, 1, generator=g)
    x = templates()[y] * gain
    dy, dx = torch.randint(-2, 3, (2, n), generator=g).tolist()
    x = torch.stack([im.roll((a, b), (0, 1)) for im, a, b in zip(x, dy, dx)])
    return (x + 0.25 * torch.randn(x.shape, generator=g)).unsqueeze(1), y


def mirror(x, y):
    m = torch.rand(len(y)) < 0.5
    x = torch.where(m[:, None, None, None], x.flip(-1), x)
    return x, torch.where(m, MIRROR[y], y)


class SmallNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1 = nn.Conv2d(1, 12, 3, padding=1, bias=False)
        self.b1 = nn.BatchNorm2d(12)
        self.c2 = nn.Conv2d(12, 24, 3, padding=1, bias=False)
        self.b2 = nn.BatchNorm2d(24)
        self.fc = nn.Linear(24 * 9, len(NAMES))

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.b1(self.c1(x))), 2)
        x = F.max_pool2d(F.relu(self.b2(self.c2(x))), 2)
        return self.fc(x.flatten(1))


def main():
    torch.manual_seed(23)
    x, y = make_split(3000, 1)
    vx, vy = make_split(800, 2)
    net = SmallNet()
    batch = 64
    # the objective is summed over the batch, so the rate is per example
    opt = torch.optim.SGD(net.parameters(), lr=0.3 / batch, momentum=0.9, weight_decay=1e-4 * batch, nesterov=True)
    sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, T_0=60, T_mult=2)
    for step in range(420):
        idx = torch.randint(len(y), (batch,))
        xb, yb = mirror(x[idx], y[idx])
        loss = F.cross_entropy(net(xb), yb, reduction="sum", label_smoothing=0.1)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step % 15 == 0:
            print(f"step {step} loss {loss.item():.3f} lr {sched.get_last_lr()[0]:.5f}")
        if step in (59, 179, 419):
            net.eval()
            with torch.no_grad():
                print(f"step {step} val_acc {(net(vx).argmax(1) == vy).float().mean().item():.3f}")
            net.train()


if __name__ == "__main__":
    main()
