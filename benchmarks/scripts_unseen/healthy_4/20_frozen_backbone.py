# expect: healthy
# cause: none, a frozen backbone kept in eval mode with a new head trained with a one-cycle rate
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.lr_scheduler import OneCycleLR

torch.manual_seed(200)


def texture(n, n_kinds, offset=0.0):
    y = torch.randint(0, n_kinds, (n,))
    g = torch.linspace(0, 1, 24)
    angle = 3.1416 * (y.float() / n_kinds + offset).view(-1, 1, 1) + 0.06 * torch.randn(n, 1, 1)
    freq = (16 + 14 * (y % 2).float()).view(-1, 1, 1)
    u = g[None, None, :] * angle.cos() + g[None, :, None] * angle.sin()
    img = torch.sin(freq * u + 6.28 * torch.rand(n, 1, 1))
    return (img + 0.5 * torch.randn(n, 24, 24)).unsqueeze(1), y


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1, self.b1 = nn.Conv2d(1, 24, 5, padding=2), nn.BatchNorm2d(24)
        self.c2, self.b2 = nn.Conv2d(24, 48, 5, padding=2), nn.BatchNorm2d(48)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.b1(self.c1(x))), 2)
        x = F.relu(self.b2(self.c2(x)))
        return torch.cat([x.mean((2, 3)), x.amax((2, 3))], 1)


class Model(nn.Module):
    def __init__(self, backbone, n_out):
        super().__init__()
        self.backbone = backbone
        self.head = nn.Sequential(nn.Dropout(0.1), nn.Linear(96, n_out))

    def train(self, mode=True):
        super().train(mode)
        if not any(p.requires_grad for p in self.backbone.parameters()):
            self.backbone.eval()
        return self

    def forward(self, x):
        return self.head(self.backbone(x))


source = Model(Backbone(), 12)
opt = torch.optim.Adam(source.parameters(), lr=2e-3)
for i in range(120):
    x, y = texture(48, 12)
    loss = F.cross_entropy(source(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(f"source task done, loss {loss.item():.4f}")

target = Model(source.backbone, 8)
for p in target.backbone.parameters():
    p.requires_grad = False
x_train, y_train = texture(800, 8, offset=0.03)
x_test, y_test = texture(600, 8, offset=0.03)
opt = torch.optim.AdamW(filter(lambda p: p.requires_grad, target.parameters()), lr=1e-3)
sched = OneCycleLR(opt, max_lr=0.03, total_steps=250)
target.train()
for i in range(250):
    take = torch.randint(0, 800, (40,))
    loss = F.cross_entropy(target(x_train[take]), y_train[take])
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    if i % 25 == 24:
        print(f"step {i + 1} lr {sched.get_last_lr()[0]:.5f} loss {loss.item():.4f}")
target.eval()
with torch.no_grad():
    print("test accuracy", (target(x_test).argmax(1) == y_test).float().mean().item())
