# expect: healthy
# symptom: the loss is bumpy and rises again after steps 120, 240 and 360 (cosine warm restarts) and the stem never changes (frozen filter bank, batch norm in eval mode); the test accuracy of every cycle is higher or equal and the snapshot ensemble is good
# axis: none
# mended: none
import math
import os
import copy
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(106)

CLASSES, SIDE, BATCH = 16, 20, 64
CYCLE, CYCLES, JITTER, LR = 120, 4, 1.5, 0.15


def make_set(n, protos):
    y = torch.randint(0, CLASSES, (n,))
    x = protos[y].clone()
    shifts = torch.randint(-3, 4, (n, 2))
    x = torch.stack([torch.roll(i, tuple(s.tolist()), (1, 2)) for i, s in zip(x, shifts)])
    return x + 1.2 * torch.randn_like(x), y


def gabor_bank(n=16, k=5):
    r = torch.arange(k).float() - k // 2
    yy, xx = torch.meshgrid(r, r, indexing="ij")
    filters = []
    for j in range(n):
        a, f = math.pi * j / n, 0.8 + 0.6 * (j % 2)
        u = xx * math.cos(a) + yy * math.sin(a)
        g = torch.exp(-(xx**2 + yy**2) / 4) * torch.cos(f * u * 2 + (j % 3))
        filters.append(g - g.mean())
    return torch.stack(filters)[:, None] / 2


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 16, 5, padding=2, bias=False)
        self.stem.weight.data.copy_(gabor_bank())
        self.stem_norm = nn.BatchNorm2d(16)
        for p in (*self.stem.parameters(), *self.stem_norm.parameters()):
            p.requires_grad_(False)
        self.body = nn.Sequential(
            nn.Conv2d(16, 32, 3, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 48, 3, padding=1),
            nn.BatchNorm2d(48),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(5),
            nn.Flatten(),
        )
        self.head = nn.Linear(48 * 25, CLASSES)

    def train(self, mode=True):
        super().train(mode)
        self.stem_norm.eval()
        return self

    def forward(self, x):
        return self.head(self.body(F.relu(self.stem_norm(self.stem(x)))))


@torch.no_grad()
def probs(model, x):
    model.eval()
    p = torch.cat([model(part).softmax(1) for part in x.split(200)])
    model.train()
    return p


def main():
    protos = F.interpolate(torch.randn(CLASSES, 1, 6, 6), SIDE, mode="bicubic")
    x, y = make_set(6000, protos)
    test_x, test_y = make_set(800, protos)
    model = Net().train()
    opt = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=LR, momentum=0.9, weight_decay=5e-4)
    sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, T_0=CYCLE, eta_min=1e-3)
    snapshots = []
    for step in range(CYCLE * CYCLES):
        idx = torch.randint(0, len(x), (BATCH,))
        loss = F.cross_entropy(model(x[idx] + JITTER * torch.randn(BATCH, 1, SIDE, SIDE)), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step % 10 == 0:
            print(f"step {step:4d}  loss {loss.item():.4f}  lr {opt.param_groups[0]['lr']:.4f}")
        if (step + 1) % CYCLE == 0:
            snapshots.append(copy.deepcopy(model.state_dict()))
            acc = (probs(model, test_x).argmax(1) == test_y).float().mean().item()
            print(f"snapshot {len(snapshots)}: test accuracy {acc:.3f}")
    total = 0
    for state in snapshots:
        model.load_state_dict(state)
        total = total + probs(model, test_x)
    print(f"ensemble of {len(snapshots)}: test accuracy {(total.argmax(1) == test_y).float().mean():.3f}")


if __name__ == "__main__":
    main()
