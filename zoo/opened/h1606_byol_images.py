# expect: healthy
# symptom: half of the networks gets no gradient and is in no optimizer, there are no negatives, the loss plateaus near 1 first and there is nothing in it that forbids collapse
# axis: none
# mended: none
import copy
import math
import os
import time
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(36)

N_CLASS, BATCH, STEPS, TAU = 10, 64, 350, 0.98


class Views:
    def __init__(self):
        self.g = torch.Generator().manual_seed(1)
        low = torch.randn(N_CLASS, 3, 5, 5, generator=self.g)
        self.base = F.interpolate(low, size=20, mode="bicubic", align_corners=False)

    def draw(self, n):
        y = torch.randint(0, N_CLASS, (n,), generator=self.g)
        own = F.interpolate(torch.randn(n, 3, 4, 4, generator=self.g), size=20, mode="bilinear", align_corners=False)
        return 0.6 * self.base[y] + 0.3 * own, y

    def augment(self, x):
        dy, dx = torch.randint(-3, 4, (2,), generator=self.g).tolist()
        x = torch.roll(x, (dy, dx), (2, 3))
        gain = 0.6 + 0.8 * torch.rand(len(x), 3, 1, 1, generator=self.g)
        return x * gain + 1.4 * torch.randn(x.shape, generator=self.g)


def mlp(i, h, o):
    return nn.Sequential(nn.Linear(i, h), nn.BatchNorm1d(h), nn.ReLU(), nn.Linear(h, o))


class Encoder(nn.Module):
    def __init__(self, w=24):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(3, w, 3, 2, 1),
            nn.BatchNorm2d(w),
            nn.ReLU(),
            nn.Conv2d(w, 2 * w, 3, 2, 1),
            nn.BatchNorm2d(2 * w),
            nn.ReLU(),
            nn.Conv2d(2 * w, 2 * w, 3, 1, 1),
            nn.BatchNorm2d(2 * w),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
        )
        self.proj = mlp(8 * w, 128, 32)

    def forward(self, x):
        return self.proj(self.conv(x))


class Byol(nn.Module):
    def __init__(self):
        super().__init__()
        self.online = Encoder()
        self.target = copy.deepcopy(self.online).requires_grad_(False)
        self.predict = mlp(32, 64, 32)

    def loss(self, a, b):
        p = F.normalize(self.predict(self.online(torch.cat([a, b]))), dim=1)
        with torch.no_grad():
            z = F.normalize(self.target(torch.cat([b, a])), dim=1)
        return (2 - 2 * (p * z).sum(1)).mean(), z.std(0).mean()

    @torch.no_grad()
    def update_target(self, tau):
        for t, o in zip(self.target.parameters(), self.online.parameters()):
            t.lerp_(o, 1 - tau)


@torch.no_grad()
def nearest(model, data):
    model.eval()
    (x, y), (q, r) = data.draw(600), data.draw(300)
    bank, probe = (F.normalize(model.online.conv(data.augment(v)), dim=1) for v in (x, q))
    vote = F.one_hot(y[(probe @ bank.t()).topk(9, dim=1).indices], N_CLASS).sum(1).argmax(1)
    model.train()
    return (vote == r).float().mean().item()


def main():
    data, model = Views(), Byol()
    params = [*model.online.parameters(), *model.predict.parameters()]
    opt = torch.optim.AdamW(params, lr=2e-3, weight_decay=1e-4)
    run, t0 = 0.0, time.time()
    print(f"before: nearest-neighbour accuracy {nearest(model, data):.3f}")
    for step in range(STEPS):
        x, _ = data.draw(BATCH)
        loss, spread = model.loss(data.augment(x), data.augment(x))
        opt.zero_grad()
        loss.backward()
        opt.step()
        model.update_target(1 - (1 - TAU) * (math.cos(math.pi * step / STEPS) + 1) / 2)
        run += loss.item()
        if (step + 1) % 10 == 0:
            print(
                f"step {step + 1:4d} loss {run / 10:.4f} spread {spread.item():.3f} ({time.time() - t0:.1f}s)",
                flush=True,
            )
            run = 0.0
    print(f"after: nearest-neighbour accuracy {nearest(model, data):.3f}")


if __name__ == "__main__":
    main()
