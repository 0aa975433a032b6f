# expect: sick
# symptom: the loss stalls at 0.42 and three of the eight kinds of waste are never predicted, whatever the learning rate
# axis: model
# cause: a ReLU follows the last layer, so the logits cannot be negative and classes whose logit is 0 get no gradient
# says: relu|activation (after|on|behind|following) the (last|final|output|logit)|(final|last|output) (layer )?activation|logits?.*(negative|clamp|clip|non.?negative)
# onset_step: 0
# fix: no activation after the last layer
# mended: the last layer has no ReLU
import os
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(49)
MENDED = os.environ.get("MENDED") == "1"
KINDS = ["paper", "glass", "metal", "plastic", "organic", "textile", "battery", "wood"]


def mlp(sizes):
    layers = []
    for k, (a, b) in enumerate(zip(sizes, sizes[1:])):
        layers.append(nn.Linear(a, b))
        if MENDED and k == len(sizes) - 2:
            break
        layers.append(nn.ReLU())
    return nn.Sequential(*layers)


class Belt:
    """Spectra of items on the belt."""

    def __init__(self, bands=30):
        self.mean = 0.8 * torch.randn(len(KINDS), bands)
        self.share = torch.tensor([0.2, 0.15, 0.1, 0.2, 0.15, 0.08, 0.04, 0.08])

    def items(self, n):
        kind = torch.multinomial(self.share, n, replacement=True)
        return self.mean[kind] + torch.randn(n, self.mean.shape[1]), kind


def recall(model, x, y):
    with torch.no_grad():
        pred = model(x).argmax(1)
    return [(pred[y == k] == k).float().mean().item() for k in range(len(KINDS))]


belt = Belt()
x, y = belt.items(2400)
xv, yv = belt.items(800)
net = mlp([30, 64, 64, len(KINDS)])
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
loss_fn = nn.CrossEntropyLoss()
for epoch in range(6):
    running = 0.0
    for idx in torch.randperm(len(x)).split(48):
        optimizer.zero_grad()
        loss = loss_fn(net(x[idx]), y[idx])
        loss.backward()
        optimizer.step()
        running += loss.item()
    r = recall(net, xv, yv)
    print(
        f"epoch {epoch} loss {running / 50:.4f} mean recall {sum(r) / len(r):.3f} "
        + " ".join(f"{k}={v:.2f}" for k, v in zip(KINDS, r))
    )
