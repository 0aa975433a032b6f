# expect: healthy
# symptom: repeated loss spikes at steps 200, 270, ... and most weights exactly zero with no gradient (looks like dead units or instability)
# axis: model
"""Iterative magnitude pruning of a small CNN on synthetic glyphs, with fine-tuning between the cuts."""

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
SIZE, CLASSES = 20, 8


def draw(n, seed):
    g = torch.Generator().manual_seed(seed)
    yy, xx = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
    label = torch.randint(CLASSES, (n,), generator=g)
    cx = 9.5 + 3 * (torch.rand(n, 1, 1, generator=g) - 0.5) * 2
    cy = 9.5 + 3 * (torch.rand(n, 1, 1, generator=g) - 0.5) * 2
    r = 4 + 2 * torch.rand(n, 1, 1, generator=g)
    dx, dy = xx - cx, yy - cy
    box = torch.maximum(dx.abs(), dy.abs())
    dist = (dx**2 + dy**2).sqrt()
    inside = box < r
    shapes = torch.stack(
        [
            (dist - r).abs() < 1,
            (box - r).abs() < 1,
            dist < r,
            inside,
            (dx.abs() < 1) & inside,
            (dy.abs() < 1) & inside,
            ((dx - dy).abs() < 1.3) & inside,
            ((dx + dy).abs() < 1.3) & inside,
        ]
    )
    img = shapes[label, torch.arange(n)].float()
    return (img + 0.5 * torch.randn(n, SIZE, SIZE, generator=g))[:, None], label


class GlyphNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1 = nn.Conv2d(1, 24, 3, padding=1)
        self.c2 = nn.Conv2d(24, 48, 3, padding=1)
        self.n1, self.n2 = nn.GroupNorm(4, 24), nn.GroupNorm(4, 48)
        self.f1 = nn.Linear(48 * 25, 128)
        self.f2 = nn.Linear(128, CLASSES)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.n1(self.c1(x))), 2)
        x = F.max_pool2d(F.relu(self.n2(self.c2(x))), 2)
        return self.f2(F.relu(self.f1(x.flatten(1))))


class MagnitudePruner:
    def __init__(self, layers):
        self.weights = [m.weight for m in layers]
        self.masks = [torch.ones_like(w) for w in self.weights]

    @torch.no_grad()
    def cut(self, sparsity):
        for w, m in zip(self.weights, self.masks):
            k = int(sparsity * w.numel())
            threshold = w.abs().flatten().kthvalue(k).values
            m.copy_((w.abs() > threshold).float())
        self.apply()

    @torch.no_grad()
    def apply(self):
        for w, m in zip(self.weights, self.masks):
            w.mul_(m)

    def mask_grads(self):
        for w, m in zip(self.weights, self.masks):
            w.grad.mul_(m)


def main():
    torch.manual_seed(4)
    x, y = draw(8000, 1)
    xv, yv = draw(1000, 2)
    net = GlyphNet()
    pruner = MagnitudePruner([net.c2, net.f1])
    opt = torch.optim.SGD(net.parameters(), lr=0.03, momentum=0.9, nesterov=True)
    cuts = {200: 0.7, 270: 0.9, 340: 0.96, 410: 0.98, 480: 0.99}
    for step in range(1, 601):
        if step in cuts:
            pruner.cut(cuts[step])
            opt.state.clear()
            print(f"-- sparsity {cuts[step]:.0%}")
        i = torch.randint(len(x), (40,))
        loss = F.cross_entropy(net(x[i]), y[i], label_smoothing=0.02)
        opt.zero_grad()
        loss.backward()
        pruner.mask_grads()
        opt.step()
        pruner.apply()
        if step % 20 == 0 or step in cuts:
            print(f"step {step:3d} loss {loss.item():.3f}", flush=True)
        if step % 100 == 0:
            with torch.no_grad():
                acc = (net(xv).argmax(1) == yv).float().mean().item()
            print(f"   held-out accuracy {acc:.3f}", flush=True)


if __name__ == "__main__":
    main()
