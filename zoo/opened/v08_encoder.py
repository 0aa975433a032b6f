# expect: sick
# symptom: the quantity that is to get better gets worse
# axis: loss
# cause: a term of the loss has the wrong sign
# says: (wrong|flipped|missing|opposite).{0,20}(sign|minus|negat)|(sign|minus).{0,60}|(maximi|minimi)[sz].{0,60}
# onset_step: 0
# fix: turn the sign of the term
# mended: the same with the fix
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"

torch.manual_seed(12)
torch.set_num_threads(1)


def augment(x):
    scale = 1 + 0.15 * torch.randn(x.size(0), 1)
    dropped = torch.rand_like(x) < 0.15
    return (x * scale + 0.3 * torch.randn_like(x)).masked_fill(dropped, 0.0)


class Encoder(nn.Module):
    def __init__(self, n_in=20, width=48, dim=16):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(n_in, width), nn.BatchNorm1d(width), nn.ReLU())
        self.project = nn.Linear(width, dim)

    def forward(self, x):
        return F.normalize(self.project(self.body(x)), dim=-1)


def alignment(z1, z2):
    sim = (z1 * z2).sum(dim=-1).mean()
    return -sim if MENDED else sim


def uniformity(z, t=2.0):
    return torch.pdist(z).pow(2).mul(-t).exp().mean().log()


def knn_accuracy(model, x, y, n_ref=300):
    model.eval()
    with torch.no_grad():
        z = model(x)
    model.train()
    near = (z[n_ref:] @ z[:n_ref].t()).argmax(1)
    return (y[:n_ref][near] == y[n_ref:]).float().mean().item()


centres = 1.2 * torch.randn(6, 20)
labels = torch.randint(0, 6, (600,))
points = centres[labels] + 0.9 * torch.randn(600, 20)

model = Encoder()
opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)

for step in range(1, 161):
    batch = points[torch.randint(0, 600, (96,))]
    z1, z2 = model(augment(batch)), model(augment(batch))
    spread = 0.5 * (uniformity(z1) + uniformity(z2))
    loss = 2.0 * alignment(z1, z2) + 0.5 * spread
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 40 == 0:
        agree = (z1 * z2).sum(-1).mean().item()
        print(
            f"step {step} loss {loss.item():+.3f} views agree {agree:.3f} knn {knn_accuracy(model, points, labels):.3f}"
        )
