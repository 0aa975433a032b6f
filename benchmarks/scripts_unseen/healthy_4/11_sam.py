# expect: healthy
# cause: none, sharpness-aware minimisation with two passes per step, in which the second loss is on purpose above the first
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(111)


class SAM:
    def __init__(self, params, base, rho=0.05):
        self.params = [p for p in params if p.requires_grad]
        self.base, self.rho = base, rho

    @torch.no_grad()
    def ascend(self):
        norm = torch.stack([p.grad.norm() for p in self.params]).norm() + 1e-12
        self.offset = [p.grad * (self.rho / norm) for p in self.params]
        for p, e in zip(self.params, self.offset):
            p.add_(e)
        self.base.zero_grad()

    @torch.no_grad()
    def descend(self):
        for p, e in zip(self.params, self.offset):
            p.sub_(e)
        self.base.step()
        self.base.zero_grad()


def crystals(n):
    """diffraction-like rings: the class is the ratio of the radii"""
    y = torch.randint(0, 4, (n,))
    g = torch.linspace(-1, 1, 22)
    r = (g[:, None] ** 2 + g[None] ** 2).sqrt()
    first = 0.25 + 0.1 * torch.rand(n, 1, 1)
    second = first * (1.4 + 0.35 * y.view(-1, 1, 1))
    img = torch.exp(-((r - first) ** 2) / 0.003) + torch.exp(-((r - second) ** 2) / 0.003)
    return (img + 0.35 * torch.randn(n, 22, 22)).unsqueeze(1), y


x_train, y_train = crystals(1500)
x_test, y_test = crystals(500)
net = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1),
    nn.GroupNorm(4, 16),
    nn.SiLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3, padding=1),
    nn.GroupNorm(4, 32),
    nn.SiLU(),
    nn.MaxPool2d(2),
    nn.Flatten(),
    nn.Linear(32 * 25, 4),
)
base = torch.optim.SGD(net.parameters(), lr=0.03, momentum=0.9, weight_decay=5e-4)
sam = SAM(net.parameters(), base)
for step in range(250):
    i = torch.randint(0, 1500, (48,))
    first = F.cross_entropy(net(x_train[i]), y_train[i])
    first.backward()
    sam.ascend()
    second = F.cross_entropy(net(x_train[i]), y_train[i])
    second.backward()
    sam.descend()
    if step % 25 == 24:
        with torch.no_grad():
            acc = (net(x_test).argmax(1) == y_test).float().mean().item()
        print(f"step {step + 1} loss {first.item():.4f} perturbed {second.item():.4f} test accuracy {acc:.3f}")
