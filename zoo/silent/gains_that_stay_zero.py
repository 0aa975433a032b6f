"""A residual network whose last gains begin at zero, under an optimizer that scales updates by the norm of weights.

The gains stay at zero, and the branches never open. Modelled on Fromage (Bernstein et al., 2020) and on LARS without an
exception for a norm of 0, by another hand.
"""

import torch
from torch import nn
from torch.optim import Optimizer

torch.set_num_threads(1)
torch.manual_seed(3)


class Residual(nn.Module):
    def __init__(self, ch):
        super().__init__()
        self.conv_a = nn.Conv2d(ch, ch, 3, padding=1, bias=False)
        self.bn_a = nn.BatchNorm2d(ch)
        self.conv_b = nn.Conv2d(ch, ch, 3, padding=1, bias=False)
        self.bn_b = nn.BatchNorm2d(ch)
        nn.init.zeros_(self.bn_b.weight)

    def forward(self, x):
        h = torch.relu(self.bn_a(self.conv_a(x)))
        return x + self.bn_b(self.conv_b(h))


class Net(nn.Module):
    def __init__(self, ch=12, classes=4):
        super().__init__()
        self.stem = nn.Conv2d(1, ch, 1)
        self.stages = nn.Sequential(Residual(ch), Residual(ch))
        self.fc = nn.Linear(ch, classes)

    def forward(self, x):
        return self.fc(self.stages(self.stem(x)).relu().mean((2, 3)))


class Fromage(Optimizer):
    """Frobenius-matched gradient descent (Bernstein et al., 2020)."""

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            lr = group["lr"]
            for w in group["params"]:
                if w.grad is None:
                    continue
                g_norm = w.grad.norm().clamp_min(1e-12)
                w.sub_(lr * w.grad * (w.norm() / g_norm))
                w.div_((1.0 + lr * lr) ** 0.5)


def stripes(n, size=12):
    yy, xx = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    waves = torch.stack([xx, yy, xx + yy, xx - yy]).float()
    label = torch.randint(4, (n,))
    phase = torch.rand(n, 1, 1) * 6.283
    img = torch.sin(waves[label] * 1.6 + phase) + 0.5 * torch.randn(n, size, size)
    return img.unsqueeze(1), label


net = Net()
optimizer = Fromage(net.parameters(), lr=0.03)
criterion = nn.CrossEntropyLoss()
running = 0.0
for it in range(1, 251):
    images, labels = stripes(48)
    out = net(images)
    loss = criterion(out, labels)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    acc = (out.argmax(1) == labels).float().mean().item()
    running = loss.item() if it == 1 else 0.9 * running + 0.1 * loss.item()
    if it % 25 == 0:
        print(f"iter {it} loss {running:.4f} acc {acc:.3f}")
