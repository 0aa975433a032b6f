# expect: healthy
# symptom: most weights never move and get no gradient, load with strict=False; resembles a lost checkpoint
# axis: model
"""Texture recognition: a trunk from stage one is kept fixed, only a new head is trained."""

import io

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
SIDE = 20


def textures(n, angles, freqs, seed):
    """Gratings; the class is a combination of angle and frequency."""
    gen = torch.Generator().manual_seed(seed)
    y = torch.randint(0, len(angles), (n,), generator=gen)
    ang = torch.tensor(angles)[y] + 0.06 * torch.randn(n, generator=gen)
    frq = torch.tensor(freqs)[y] * (1 + 0.04 * torch.randn(n, generator=gen))
    ax = torch.arange(SIDE).float()
    yy, xx = torch.meshgrid(ax, ax, indexing="ij")
    u = torch.cos(ang)[:, None, None] * xx + torch.sin(ang)[:, None, None] * yy
    phase = 6.28 * torch.rand(n, 1, 1, generator=gen)
    img = torch.sin(frq[:, None, None] * u + phase) + 0.9 * torch.randn(n, SIDE, SIDE, generator=gen)
    return img[:, None], y


class TextureNet(nn.Module):
    def __init__(self, n_class):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Conv2d(1, 24, 7, padding=3, bias=False),
            nn.BatchNorm2d(24),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(24, 32, 3, padding=1, bias=False),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
        self.fc = nn.Linear(32, n_class)

    def forward(self, x):
        return self.fc(self.trunk(x))


def accuracy(net, x, y):
    net.eval()
    with torch.no_grad():
        return (net(x).argmax(1) == y).float().mean().item()


def stage_one():
    angles = [a for a in (0.0, 0.52, 1.05, 1.57, 2.09, 2.62) for _ in range(2)]
    freqs = [0.7, 1.4] * 6
    x, y = textures(3000, angles, freqs, 1)
    net = TextureNet(12)
    opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 160)
    net.train()
    for step in range(160):
        i = torch.randint(0, len(x), (48,))
        loss = F.cross_entropy(net(x[i]), y[i])
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step % 20 == 0:
            print(f"stage 1 step {step:4d} loss {loss.item():.4f}")
    print(f"stage 1 test accuracy {accuracy(net, *textures(600, angles, freqs, 2)):.3f}")
    # the old classes are of no interest any more
    weights = {k: v for k, v in net.state_dict().items() if not k.startswith("fc.")}
    buf = io.BytesIO()
    torch.save(weights, buf)
    buf.seek(0)
    return buf


def stage_two(blob):
    angles, freqs = [0.26, 0.78, 1.31, 1.83, 2.36], [1.0, 1.0, 1.0, 1.0, 1.0]
    x, y = textures(250, angles, freqs, 3)
    net = TextureNet(5)
    report = net.load_state_dict(torch.load(blob), strict=False)
    assert not report.unexpected_keys and set(report.missing_keys) == {"fc.weight", "fc.bias"}
    net.trunk.requires_grad_(False)
    opt = torch.optim.Adam(net.fc.parameters(), lr=2e-2)
    net.train()
    net.trunk.eval()  # keep the running statistics of stage one
    for step in range(160):
        i = torch.randint(0, len(x), (32,))
        loss = F.cross_entropy(net(x[i]), y[i])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0 or step == 159:
            print(f"stage 2 step {step:4d} loss {loss.item():.4f}")
    print(f"final loss {loss.item():.4f} test accuracy {accuracy(net, *textures(800, angles, freqs, 4)):.3f}")


if __name__ == "__main__":
    torch.manual_seed(23)
    stage_two(stage_one())
