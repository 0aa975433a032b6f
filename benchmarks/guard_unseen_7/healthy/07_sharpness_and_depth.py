# Credit classes from a table: a deep residual net with stochastic depth (each layer dropped in up to half of the steps), trained with
# sharpness-aware steps (climb, take the gradient there, come back) and annealed noise in the gradients. SGD with momentum.
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()

STEPS, BATCH, SIZE, CLASSES, DEPTH = 500, 128, 20, 4, 6
RADIUS = 0.08
world = torch.Generator().manual_seed(8707)
first = torch.randn(SIZE, 12, generator=world) / SIZE**0.5
second = 1.8 * torch.randn(12, CLASSES, generator=world)


def table(count, generator=None):
    x = torch.randn(count, SIZE, generator=generator)
    score = torch.sin(1.6 * x @ first) @ second + 0.8 * torch.randn(count, CLASSES, generator=generator)
    return x, score.argmax(1)


class Layer(nn.Module):
    def __init__(self, width, drop):
        super().__init__()
        self.drop = drop
        self.net = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))

    def forward(self, x):
        if not self.training:
            return x + (1 - self.drop) * self.net(x)
        if torch.rand(()).item() < self.drop:
            return x
        return x + self.net(x)


class Net(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        layers = [Layer(width, 0.5 * (i + 1) / DEPTH) for i in range(DEPTH)]
        self.layers = nn.Sequential(nn.Linear(SIZE, width), *layers, nn.LayerNorm(width), nn.Linear(width, CLASSES))

    def forward(self, x):
        return self.layers(x)


def loss_of(model, x, label):
    return F.cross_entropy(model(x), label)


held_out = table(5000, world)
torch.manual_seed(args.seed)
model = Net()
weights = list(model.parameters())
optimizer = torch.optim.SGD(weights, lr=0.08, momentum=0.9, weight_decay=1e-4)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS, eta_min=1e-3)
for step in range(STEPS):
    x, label = table(BATCH)
    loss = loss_of(model, x, label)
    optimizer.zero_grad()
    loss.backward()
    grads = [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in weights]
    norm = torch.stack([g.norm() for g in grads]).norm() + 1e-12
    with torch.no_grad():
        kept = [p.clone() for p in weights]
        for p, g in zip(weights, grads):
            p.add_(g, alpha=RADIUS / norm.item())
    optimizer.zero_grad()
    loss_of(model, x, label).backward()
    with torch.no_grad():
        for p, old in zip(weights, kept):
            p.copy_(old)
            if p.grad is not None:
                p.grad.add_(torch.randn_like(p), alpha=0.01 / (1 + step / 50))
    optimizer.step()
    schedule.step()
    if step % 25 == 0:
        print(f"step {step} loss {loss.item():.4f} norm {norm.item():.3f}")
model.eval()
with torch.no_grad():
    print("final:", loss_of(model, *held_out).item())
