# expect: healthy
# symptom: rows that are blended, which looks like labels that are not
# axis: none
# mended: none
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F


class Mixup:
    """Each row gets its own weight; pairs come from the flipped batch."""

    def __init__(self, n_classes, alpha, prob):
        self.n_classes, self.alpha, self.prob = n_classes, alpha, prob

    def __call__(self, x, y):
        lam = torch.distributions.Beta(self.alpha, self.alpha).sample((x.size(0), 1))
        lam = torch.where(torch.rand_like(lam) < self.prob, lam, torch.ones_like(lam))
        target = F.one_hot(y, self.n_classes).to(x.dtype)
        return x.mul(lam) + x.flip(0).mul(1 - lam), target * lam + target.flip(0) * (1 - lam)


def rings(n):
    y = torch.randint(0, 3, (n,))
    radius = 1.0 + y + 0.2 * torch.randn(n)
    angle = 6.2832 * torch.rand(n)
    return torch.stack([radius * angle.cos(), radius * angle.sin()], 1), y


def accuracy(net, x, y):
    with torch.no_grad():
        return (net(x).argmax(1) == y).float().mean().item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=240)
    ap.add_argument("--alpha", type=float, default=0.2)
    ap.add_argument("--prob", type=float, default=0.7)
    ap.add_argument("--smoothing", type=float, default=0.05)
    args = ap.parse_args()

    torch.manual_seed(5)
    torch.set_num_threads(1)
    x, y = rings(900)
    x_test, y_test = rings(300)
    net = nn.Sequential(nn.Linear(2, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 3))
    opt = torch.optim.Adam(net.parameters(), lr=5e-3)
    mix = Mixup(3, args.alpha, args.prob)
    running = 0.0
    for step in range(1, args.steps + 1):
        pick = torch.randint(0, len(x), (48,))
        inputs, target = mix(x[pick], y[pick])
        loss = F.cross_entropy(net(inputs), target, label_smoothing=args.smoothing)
        opt.zero_grad()
        loss.backward()
        opt.step()
        running += loss.item()
        if step % 60 == 0:
            print(f"step {step} loss {running / 60:.4f} test acc {accuracy(net, x_test, y_test):.3f}")
            running = 0.0


if __name__ == "__main__":
    main()
