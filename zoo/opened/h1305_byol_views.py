# expect: healthy
# symptom: the target network gets no gradient, is not in the optimizer and is changed by hand each step; the loss has no negatives and compares a network with its own copy
# axis: none
# mended: none
import copy
import math
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(12)
rng = np.random.default_rng(12)
S, CLASSES = 20, 8


def make_textures(n):
    """Eight texture classes: sums of two fixed waves with random phases, plus noise."""
    y = rng.integers(0, CLASSES, size=n)
    yy, xx = np.mgrid[0 : S + 6, 0 : S + 6]
    out = np.empty((n, 1, S + 6, S + 6), dtype=np.float32)
    for i in range(n):
        a, b = y[i] % 4, y[i] // 4
        img = 0.0
        for ang, f in ((math.pi * a / 4, 0.7), (math.pi * (a + 1 + b) / 4, 1.3)):
            img = img + np.sin(f * (xx * math.cos(ang) + yy * math.sin(ang)) + rng.uniform(0, 2 * math.pi))
        out[i, 0] = 0.6 * img + 0.3 * rng.normal(size=img.shape)
    return torch.from_numpy(out), torch.from_numpy(y)


def random_view(x):
    """Random crop, gain, offset and noise."""
    dx, dy = torch.randint(0, 7, (2, len(x)))
    crop = torch.stack([img[:, a : a + S, b : b + S] for img, a, b in zip(x, dx, dy)])
    gain = 0.6 + 0.8 * torch.rand(len(x), 1, 1, 1)
    return crop * gain + 0.2 * torch.randn(len(x), 1, 1, 1) + 0.15 * torch.randn_like(crop)


def mlp(i, h, o):
    return nn.Sequential(nn.Linear(i, h), nn.BatchNorm1d(h), nn.ReLU(), nn.Linear(h, o))


class Encoder(nn.Module):
    def __init__(self, c=24, d=48):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, c, 5, stride=2, padding=2),
            nn.BatchNorm2d(c),
            nn.ReLU(),
            nn.Conv2d(c, 2 * c, 3, stride=2, padding=1),
            nn.BatchNorm2d(2 * c),
            nn.ReLU(),
            nn.Conv2d(2 * c, 2 * c, 3, padding=1),
            nn.BatchNorm2d(2 * c),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
        self.projector = mlp(2 * c, 96, d)

    def forward(self, x):
        return self.projector(self.features(x))


class BYOL(nn.Module):
    def __init__(self):
        super().__init__()
        self.online = Encoder()
        self.predictor = mlp(48, 96, 48)
        self.target = copy.deepcopy(self.online)
        self.target.requires_grad_(False)

    def regress(self, a, b):
        p = F.normalize(self.predictor(self.online(a)), dim=-1)
        with torch.no_grad():
            z = F.normalize(self.target(b), dim=-1)
        return 2 - 2 * (p * z).sum(-1)

    def forward(self, a, b):
        return (self.regress(a, b) + self.regress(b, a)).mean()

    @torch.no_grad()
    def update_target(self, tau):
        for t, o in zip(self.target.parameters(), self.online.parameters()):
            t.lerp_(o, 1 - tau)


@torch.no_grad()
def knn_accuracy(model, x, y, xq, yq, k=10):
    model.eval()
    f = F.normalize(model.online.features(x[:, :, 3 : 3 + S, 3 : 3 + S]), dim=-1)
    q = F.normalize(model.online.features(xq[:, :, 3 : 3 + S, 3 : 3 + S]), dim=-1)
    model.train()
    votes = F.one_hot(y[(q @ f.T).topk(k).indices], CLASSES).sum(1)
    return (votes.argmax(-1) == yq).float().mean().item(), f.std(0).mean().item()


x, y = make_textures(1600)
xq, yq = make_textures(400)
model = BYOL()
opt = torch.optim.AdamW(
    list(model.online.parameters()) + list(model.predictor.parameters()), lr=1e-3, weight_decay=1e-4
)

STEPS = 200
for step in range(STEPS):
    batch = x[torch.randint(0, len(x), (64,))]
    loss = model(random_view(batch), random_view(batch))
    opt.zero_grad()
    loss.backward()
    opt.step()
    model.update_target(1 - 0.03 * (math.cos(math.pi * step / STEPS) + 1) / 2)
    if step % 20 == 0:
        print(f"step {step:4d} loss {loss.item():.4f}")
    if step % 100 == 99 or step == 0:
        print("   knn acc %.3f feature std %.4f" % knn_accuracy(model, x, y, xq, yq))
