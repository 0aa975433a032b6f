# expect: healthy
# symptom: the loss jumps up at regular steps (each time the learning rate restarts) and the learning rate goes to almost zero four times
# axis: none
# mended: none
import copy

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(6)

N_CLS, SIZE = 8, 16
CYCLE, CYCLES, BATCH, LR = 110, 4, 40, 0.2


def make_set(n, seed):
    g = torch.Generator().manual_seed(seed)
    base = torch.randn(N_CLS, 3, 6, 6, generator=torch.Generator().manual_seed(99))
    y = torch.randint(0, N_CLS, (n,), generator=g)
    x = 0.8 * torch.randn(n, 3, SIZE, SIZE, generator=g)
    off = torch.randint(0, SIZE - 6, (n, 2), generator=g)
    for i in range(n):
        a, b = off[i].tolist()
        x[i, :, a : a + 6, b : b + 6] += base[y[i]] * 0.9
        j = int(torch.randint(0, N_CLS, (1,), generator=g))
        c, d = torch.randint(0, SIZE - 6, (2,), generator=g).tolist()
        x[i, :, c : c + 6, d : d + 6] += base[j] * 0.35
    return x, y


class ResBlock(nn.Module):
    def __init__(self, i, o, s):
        super().__init__()
        self.c1 = nn.Conv2d(i, o, 3, s, 1, bias=False)
        self.c2 = nn.Conv2d(o, o, 3, 1, 1, bias=False)
        self.b1, self.b2 = nn.BatchNorm2d(o), nn.BatchNorm2d(o)
        self.skip = nn.Identity() if i == o and s == 1 else nn.Conv2d(i, o, 1, s, bias=False)

    def forward(self, x):
        h = self.b2(self.c2(F.relu(self.b1(self.c1(x)))))
        return F.relu(h + self.skip(x))


def resnet(c=10):
    return nn.Sequential(
        nn.Conv2d(3, c, 3, 1, 1, bias=False),
        nn.BatchNorm2d(c),
        nn.ReLU(),
        ResBlock(c, c, 1),
        ResBlock(c, 2 * c, 2),
        ResBlock(2 * c, 4 * c, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4 * c, N_CLS),
    )


@torch.no_grad()
def probs(net, x):
    net.eval()
    p = torch.cat([net(b).softmax(-1) for b in x.split(256)])
    net.train()
    return p


def main():
    xt, yt = make_set(1600, 0)
    xv, yv = make_set(600, 1)
    net = resnet()
    opt = torch.optim.SGD(net.parameters(), lr=LR, momentum=0.9, weight_decay=5e-4, nesterov=True)
    sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, T_0=CYCLE, eta_min=1e-4)
    snapshots, order = [], []
    r = np.random.default_rng(0)
    for step in range(CYCLE * CYCLES):
        if len(order) < BATCH:
            order = r.permutation(len(xt)).tolist()
        idx = torch.tensor([order.pop() for _ in range(BATCH)])
        x = xt[idx] + 0.7 * torch.randn(BATCH, 3, SIZE, SIZE)
        loss = F.cross_entropy(net(x), yt[idx], label_smoothing=0.05)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step % 10 == 0:
            print(f"step {step} lr {opt.param_groups[0]['lr']:.4f} loss {loss.item():.4f}", flush=True)
        if (step + 1) % CYCLE == 0:
            snapshots.append(copy.deepcopy(net).eval())
            one = (probs(net, xv).argmax(-1) == yv).float().mean().item()
            ens = sum(probs(s, xv) for s in snapshots[-3:])
            print(
                f"cycle {len(snapshots)} single {one:.3f} ensemble {(ens.argmax(-1) == yv).float().mean().item():.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
